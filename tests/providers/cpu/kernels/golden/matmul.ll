; --- gemm_tiles_HASH, effort quick
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"gemm_tiles_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = load i64, ptr %a0
  %.2 = inttoptr i64 %.1 to ptr
  %.3 = getelementptr i8, ptr %a0, i64 8
  %.4 = load i64, ptr %.3
  %.5 = inttoptr i64 %.4 to ptr
  %.6 = getelementptr i8, ptr %a0, i64 16
  %.7 = load i64, ptr %.6
  %.8 = getelementptr i8, ptr %a0, i64 24
  %.9 = load i64, ptr %.8
  %.10 = inttoptr i64 %.9 to ptr
  %.11 = getelementptr i8, ptr %a0, i64 32
  %.12 = load i64, ptr %.11
  %.13 = inttoptr i64 %.12 to ptr
  %.14 = getelementptr i8, ptr %a0, i64 40
  %.15 = load i64, ptr %.14
  %.16 = getelementptr i8, ptr %a0, i64 48
  %.17 = load i64, ptr %.16
  %.18 = getelementptr i8, ptr %a0, i64 56
  %.19 = load i64, ptr %.18
  %.20 = getelementptr i8, ptr %a0, i64 64
  %.21 = load i64, ptr %.20
  %.22 = inttoptr i64 %.21 to ptr
  %.23 = getelementptr i8, ptr %a0, i64 72
  %.24 = load i64, ptr %.23
  %.25 = inttoptr i64 %.24 to ptr
  %.26 = getelementptr i8, ptr %a0, i64 80
  %.27 = load i64, ptr %.26
  %.28 = getelementptr i8, ptr %a0, i64 88
  %.29 = load i64, ptr %.28
  %.30 = getelementptr i8, ptr %a0, i64 96
  %.31 = load i64, ptr %.30
  %.32 = getelementptr i8, ptr %a0, i64 104
  %.33 = load i64, ptr %.32
  %.34 = getelementptr i8, ptr %a0, i64 112
  %.35 = load i64, ptr %.34
  %.36 = getelementptr i8, ptr %a0, i64 120
  %.37 = load i64, ptr %.36
  %.38 = getelementptr i8, ptr %a0, i64 128
  %.39 = load i64, ptr %.38
  %.40 = getelementptr i8, ptr %a0, i64 136
  %.41 = load i64, ptr %.40
  %.42 = getelementptr i8, ptr %a0, i64 144
  %.43 = load i64, ptr %.42
  %.44 = getelementptr i8, ptr %a0, i64 152
  %.45 = load i64, ptr %.44
  %.46 = getelementptr i8, ptr %a0, i64 160
  %.47 = load i64, ptr %.46
  %.48 = getelementptr i8, ptr %a0, i64 168
  %.49 = load i64, ptr %.48
  %.50 = getelementptr i8, ptr %a0, i64 176
  %.51 = load i64, ptr %.50
  %.52 = inttoptr i64 %.51 to ptr
  %.53 = getelementptr i8, ptr %a0, i64 184
  %.54 = load i64, ptr %.53
  %.55 = inttoptr i64 %.54 to ptr
  %.56 = getelementptr i8, ptr %a0, i64 192
  %.57 = load i64, ptr %.56
  %.58 = getelementptr i8, ptr %a0, i64 200
  %.59 = load i64, ptr %.58
  %.60 = getelementptr i8, ptr %a0, i64 208
  %.61 = load i64, ptr %.60
  %.62 = inttoptr i64 %.61 to ptr
  %.63 = getelementptr i8, ptr %a0, i64 216
  %.64 = load i64, ptr %.63
  %.65 = inttoptr i64 %.64 to ptr
  %.66 = icmp slt i64 0, %.49
  %.67 = select i1 %.66, ptr %.62, ptr %.2
  %.68 = select i1 %.66, ptr %.65, ptr %.5
  %.69 = mul i64 %a1, %.27
  %.70 = getelementptr i8, ptr %.25, i64 %.69
  %.71 = icmp eq i64 %.41, 0
  %.72 = add i64 %.41, %.43
  %.73 = icmp eq i64 %.72, %.45
  %.74 = and i1 %.71, %.73
  %.75 = mul i64 %.29, %.37
  %.76 = sub i64 %.75, %.57
  %.77 = mul i64 %.76, %a1
  %.78 = udiv i64 %.77, %a2
  %.79 = add i64 %a1, 1
  %.80 = mul i64 %.76, %.79
  %.81 = udiv i64 %.80, %a2
  %.82 = sub i64 %.59, 1
  %.83 = add i64 %.57, %.82
  %.84 = udiv i64 %.83, %.59
  %unit.85 = alloca i64
  store i64 %.78, ptr %unit.85
  %end.86 = alloca i64
  store i64 %.81, ptr %end.86
  %number.87 = alloca i64
  store i64 0, ptr %number.87
  %going.88 = alloca i64
  store i64 1, ptr %going.88
  br label %"while"
"while":
  %.89 = load i64, ptr %going.88
  %.90 = icmp eq i64 %.89, 1
  br i1 %.90, label %"do", label %"done"
"do":
  br label %"while.1"
"done":
  %.257 = load i64, ptr %number.87
  %.258 = add i64 %.84, %a2
  %.259 = sub i64 %.258, 1
  %.260 = icmp eq i64 %.257, %.259
  br i1 %.260, label %"then.1", label %"endif.2"
"while.1":
  %.91 = load i64, ptr %unit.85
  %.92 = load i64, ptr %end.86
  %.93 = icmp slt i64 %.91, %.92
  br i1 %.93, label %"do.1", label %"done.1"
"do.1":
  %.94 = load i64, ptr %unit.85
  %.95 = load i64, ptr %end.86
  %.96 = mul i64 %.35, %.37
  %.97 = udiv i64 %.94, %.96
  %.98 = urem i64 %.94, %.96
  %.99 = mul i64 %.97, %.35
  %.100 = sub i64 %.29, %.99
  %.101 = icmp slt i64 %.35, %.100
  %.102 = select i1 %.101, i64 %.35, i64 %.100
  %.103 = udiv i64 %.98, %.102
  %.104 = urem i64 %.98, %.102
  %.105 = sub i64 %.102, %.104
  %.106 = sub i64 %.95, %.94
  %.107 = icmp slt i64 %.105, %.106
  %.108 = select i1 %.107, i64 %.105, i64 %.106
  %.109 = mul i64 %.103, 16
  %.110 = sub i64 %.19, %.109
  %.111 = icmp slt i64 %.110, 16
  %.112 = select i1 %.111, i64 %.110, i64 16
  %.113 = add i64 %.112, 7
  %.114 = udiv i64 %.113, 8
  %.115 = mul i64 %.114, 32
  %.116 = mul i64 %.103, %.39
  %.117 = mul i64 %.41, %.115
  %.118 = getelementptr i8, ptr %.10, i64 %.116
  %.119 = getelementptr i8, ptr %.118, i64 %.117
  %.120 = mul i64 %.109, 4
  %.121 = getelementptr i8, ptr %.13, i64 %.120
  %.122 = add i64 %.99, %.104
  %.123 = mul i64 %.103, %.29
  %.124 = add i64 %.123, %.122
  %.125 = mul i64 %.124, 384
  %.126 = getelementptr i8, ptr %.52, i64 %.125
  %.127 = select i1 %.74, ptr %.70, ptr %.126
  %.128 = sub i64 %.108, 1
  %.129 = add i64 %.115, %.128
  %.130 = udiv i64 %.129, %.108
  %.131 = mul i64 %.41, %.115
  %.132 = add i64 %.94, %.108
  %.133 = icmp slt i64 %.76, %.95
  %.134 = add i64 %.95, %.59
  %.135 = select i1 %.133, i64 %.134, i64 %.76
  %.136 = icmp slt i64 %.132, %.95
  %.137 = select i1 %.136, i64 %.132, i64 %.135
  %.138 = sub i64 %.75, 1
  %.139 = icmp slt i64 %.137, %.138
  %.140 = select i1 %.139, i64 %.137, i64 %.138
  %.141 = mul i64 %.35, %.37
  %.142 = urem i64 %.140, %.141
  %.143 = mul i64 %.35, %.37
  %.144 = udiv i64 %.140, %.143
  %.145 = mul i64 %.144, %.35
  %.146 = sub i64 %.29, %.145
  %.147 = icmp slt i64 %.35, %.146
  %.148 = select i1 %.147, i64 %.35, i64 %.146
  %.149 = udiv i64 %.142, %.148
  %.150 = mul i64 %.149, %.39
  %.151 = getelementptr i8, ptr %.10, i64 %.150
  %.152 = getelementptr i8, ptr %.151, i64 %.131
  %.153 = icmp slt i64 0, %.43
  br i1 %.153, label %"loop", label %"after"
"done.1":
  %.249 = atomicrmw add ptr %.55, i64 1 monotonic
  store i64 %.249, ptr %number.87
  %.250 = mul i64 %.249, %.59
  %.251 = add i64 %.76, %.250
  store i64 %.251, ptr %unit.85
  %.252 = add i64 %.251, %.59
  %.253 = icmp slt i64 %.75, %.252
  %.254 = select i1 %.253, i64 %.75, i64 %.252
  store i64 %.254, ptr %end.86
  %.255 = icmp slt i64 %.249, %.84
  %.256 = select i1 %.255, i64 1, i64 0
  store i64 %.256, ptr %going.88
  br label %"while", !llvm.loop !2
"loop":
  %.154 = phi i64 [0, %"do.1"], [%.245, %"after.1"]
  %.155 = sub i64 %.43, %.154
  %.156 = icmp slt i64 %.47, %.155
  %.157 = select i1 %.156, i64 %.47, i64 %.155
  %.158 = icmp eq i64 %.154, 0
  %.159 = and i1 %.71, %.158
  %.160 = select i1 %.159, i64 0, i64 1
  %.161 = add i64 %.154, %.157
  %.162 = icmp eq i64 %.161, %.43
  %.163 = and i1 %.73, %.162
  %.164 = mul i64 %.154, %.115
  %.165 = getelementptr i8, ptr %.119, i64 %.164
  %.166 = add i64 %.154, %.157
  %.167 = icmp slt i64 %.166, %.43
  %.168 = mul i64 %.157, %.115
  %.169 = getelementptr i8, ptr %.165, i64 %.168
  %.170 = select i1 %.167, ptr %.169, ptr %.152
  %.171 = icmp eq i64 %.29, 1
  %.172 = getelementptr i8, ptr %.165, i64 4096
  %.173 = select i1 %.171, ptr %.172, ptr %.170
  %.174 = mul i64 %.157, %.130
  %.175 = icmp eq i64 %.49, 1
  %.176 = add i64 %.41, %.154
  %.177 = mul i64 %.176, %.17
  %.178 = select i1 %.175, i64 %.177, i64 %.154
  %.179 = mul i64 %.178, 4
  %.180 = getelementptr i8, ptr %.68, i64 %.179
  %.181 = mul i64 %.157, 4
  %.182 = select i1 %.175, i64 %.181, i64 %.7
  %.183 = icmp slt i64 0, %.108
  br i1 %.183, label %"loop.1", label %"after.1"
"after":
  %.247 = load i64, ptr %unit.85
  %.248 = add i64 %.247, %.108
  store i64 %.248, ptr %unit.85
  br label %"while.1", !llvm.loop !2
"loop.1":
  %.184 = phi i64 [0, %"loop"], [%.243, %"endif"]
  %.185 = add i64 %.122, %.184
  %.186 = mul i64 %.185, %.31
  %.187 = icmp slt i64 %.185, %.33
  %.188 = select i1 %.187, i64 %.185, i64 %.33
  %.189 = add i64 %.186, %.188
  %.190 = icmp slt i64 %.185, %.33
  %.191 = select i1 %.190, i64 1, i64 0
  %.192 = add i64 %.31, %.191
  %.193 = mul i64 %.184, 384
  %.194 = getelementptr i8, ptr %.127, i64 %.193
  %.195 = mul i64 %.184, %.174
  %.196 = getelementptr i8, ptr %.173, i64 %.195
  %.197 = mul i64 %.189, %.182
  %.198 = getelementptr i8, ptr %.180, i64 %.197
  call void %.67(ptr %.198, i64 %.7, ptr %.165, i64 %.115, i64 %.157, ptr %.22, i64 1, ptr %.194, i64 %.160, ptr %.196, i64 %.130, i64 %.192, i64 %.114)
  br i1 %.163, label %"then", label %"endif"
"after.1":
  %.245 = add i64 %.154, %.47
  %.246 = icmp slt i64 %.245, %.43
  br i1 %.246, label %"loop", label %"after", !llvm.loop !2
"then":
  %.199 = mul i64 %.189, %.15
  %.200 = getelementptr i8, ptr %.121, i64 %.199
  %.201 = icmp eq i64 %.112, 16
  br i1 %.201, label %"if", label %"else"
"endif":
  %.243 = add i64 %.184, 1
  %.244 = icmp slt i64 %.243, %.108
  br i1 %.244, label %"loop.1", label %"after.1", !llvm.loop !2
"if":
  %.202 = icmp slt i64 0, %.192
  br i1 %.202, label %"loop.2", label %"after.2"
"else":
  %.215 = mul i64 %.114, 32
  %.216 = icmp slt i64 0, %.114
  br i1 %.216, label %"loop.3", label %"after.3"
"endif.1":
  br label %"endif"
"loop.2":
  %.203 = phi i64 [0, %"if"], [%.213, %"loop.2"]
  %.204 = mul i64 %.203, 64
  %.205 = mul i64 %.203, %.15
  %.206 = getelementptr i8, ptr %.200, i64 %.205
  %.207 = getelementptr i8, ptr %.194, i64 %.204
  %.208 = load <8 x float>, ptr %.207, align 4
  store <8 x float> %.208, ptr %.206, align 4
  %.209 = add i64 %.204, 32
  %.210 = getelementptr i8, ptr %.194, i64 %.209
  %.211 = load <8 x float>, ptr %.210, align 4
  %.212 = getelementptr i8, ptr %.206, i64 32
  store <8 x float> %.211, ptr %.212, align 4
  %.213 = add i64 %.203, 1
  %.214 = icmp slt i64 %.213, %.192
  br i1 %.214, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  br label %"endif.1"
"loop.3":
  %.217 = phi i64 [0, %"else"], [%.241, %"after.4"]
  %.218 = mul i64 %.217, 8
  %.219 = sub i64 %.112, %.218
  %.220 = icmp slt i64 %.219, 0
  %.221 = select i1 %.220, i64 0, i64 %.219
  %.222 = icmp slt i64 %.221, 8
  %.223 = select i1 %.222, i64 %.221, i64 8
  %.224 = trunc i64 %.223 to i32
  %.225 = insertelement <8 x i32> poison, i32 %.224, i32 0
  %.226 = shufflevector <8 x i32> %.225, <8 x i32> poison, <8 x i32> zeroinitializer
  %.227 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.226
  %.228 = icmp slt i64 0, %.192
  br i1 %.228, label %"loop.4", label %"after.4"
"after.3":
  br label %"endif.1"
"loop.4":
  %.229 = phi i64 [0, %"loop.3"], [%.239, %"loop.4"]
  %.230 = mul i64 %.229, %.215
  %.231 = mul i64 %.218, 4
  %.232 = getelementptr i8, ptr %.194, i64 %.230
  %.233 = getelementptr i8, ptr %.232, i64 %.231
  %.234 = load <8 x float>, ptr %.233, align 4
  %.235 = mul i64 %.229, %.15
  %.236 = mul i64 %.218, 4
  %.237 = getelementptr i8, ptr %.200, i64 %.235
  %.238 = getelementptr i8, ptr %.237, i64 %.236
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %.234, ptr %.238, i32 4, <8 x i1> %.227)
  %.239 = add i64 %.229, 1
  %.240 = icmp slt i64 %.239, %.192
  br i1 %.240, label %"loop.4", label %"after.4", !llvm.loop !2
"after.4":
  %.241 = add i64 %.217, 1
  %.242 = icmp slt i64 %.241, %.114
  br i1 %.242, label %"loop.3", label %"after.3", !llvm.loop !2
"then.1":
  store i64 0, ptr %.55, align 8
  br label %"endif.2"
"endif.2":
  ret void
}
declare void @"llvm.masked.store.v8f32.p0"(<8 x float>, ptr, i32, <8 x i1>)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
