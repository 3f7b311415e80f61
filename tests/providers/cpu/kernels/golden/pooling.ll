; --- global_average_HASH, effort all
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"global_average_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
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
  %.10 = getelementptr i8, ptr %a0, i64 32
  %.11 = load i64, ptr %.10
  %.12 = getelementptr i8, ptr %a0, i64 40
  %.13 = load i64, ptr %.12
  %.14 = add i64 %.11, 31
  %.15 = udiv i64 %.14, 32
  %.16 = mul i64 %.7, %.15
  %.17 = mul i64 %.16, %a1
  %.18 = udiv i64 %.17, %a2
  %.19 = add i64 %a1, 1
  %.20 = mul i64 %.16, %.19
  %.21 = udiv i64 %.20, %a2
  %.22 = icmp slt i64 %.18, %.21
  br i1 %.22, label %"loop", label %"after"
"loop":
  %.23 = phi i64 [%.18, %"entry"], [%.195, %"endif"]
  %.24 = udiv i64 %.23, %.15
  %.25 = urem i64 %.23, %.15
  %.26 = mul i64 %.25, 32
  %.27 = mul i64 %.24, %.9
  %.28 = mul i64 %.27, %.13
  %.29 = getelementptr i8, ptr %.2, i64 %.28
  %.30 = mul i64 %.24, %.11
  %.31 = add i64 %.26, 31
  %.32 = icmp slt i64 %.31, %.11
  br i1 %.32, label %"if", label %"else"
"after":
  ret void
"if":
  %.33 = mul i64 %.26, 4
  %.34 = getelementptr i8, ptr %.29, i64 %.33
  %.35 = and i64 %.9, -2
  %.36 = icmp slt i64 0, %.35
  br i1 %.36, label %"loop.1", label %"after.1"
"else":
  %.142 = icmp slt i64 %.26, %.11
  br i1 %.142, label %"loop.3", label %"after.3"
"endif":
  %.195 = add i64 %.23, 1
  %.196 = icmp slt i64 %.195, %.21
  br i1 %.196, label %"loop", label %"after", !llvm.loop !2
"loop.1":
  %.37 = phi i64 [0, %"if"], [%.73, %"loop.1"]
  %.38 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.49, %"loop.1"]
  %.39 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.52, %"loop.1"]
  %.40 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.55, %"loop.1"]
  %.41 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.58, %"loop.1"]
  %.42 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.63, %"loop.1"]
  %.43 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.66, %"loop.1"]
  %.44 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.69, %"loop.1"]
  %.45 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.72, %"loop.1"]
  %.46 = mul i64 %.37, %.13
  %.47 = getelementptr i8, ptr %.34, i64 %.46
  %.48 = load <8 x float>, ptr %.47, align 4
  %.49 = fadd <8 x float> %.38, %.48
  %.50 = getelementptr i8, ptr %.47, i64 32
  %.51 = load <8 x float>, ptr %.50, align 4
  %.52 = fadd <8 x float> %.39, %.51
  %.53 = getelementptr i8, ptr %.47, i64 64
  %.54 = load <8 x float>, ptr %.53, align 4
  %.55 = fadd <8 x float> %.40, %.54
  %.56 = getelementptr i8, ptr %.47, i64 96
  %.57 = load <8 x float>, ptr %.56, align 4
  %.58 = fadd <8 x float> %.41, %.57
  %.59 = add i64 %.37, 1
  %.60 = mul i64 %.59, %.13
  %.61 = getelementptr i8, ptr %.34, i64 %.60
  %.62 = load <8 x float>, ptr %.61, align 4
  %.63 = fadd <8 x float> %.42, %.62
  %.64 = getelementptr i8, ptr %.61, i64 32
  %.65 = load <8 x float>, ptr %.64, align 4
  %.66 = fadd <8 x float> %.43, %.65
  %.67 = getelementptr i8, ptr %.61, i64 64
  %.68 = load <8 x float>, ptr %.67, align 4
  %.69 = fadd <8 x float> %.44, %.68
  %.70 = getelementptr i8, ptr %.61, i64 96
  %.71 = load <8 x float>, ptr %.70, align 4
  %.72 = fadd <8 x float> %.45, %.71
  %.73 = add i64 %.37, 2
  %.74 = icmp slt i64 %.73, %.35
  br i1 %.74, label %"loop.1", label %"after.1", !llvm.loop !2
"after.1":
  %.75 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.49, %"loop.1"]
  %.76 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.52, %"loop.1"]
  %.77 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.55, %"loop.1"]
  %.78 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.58, %"loop.1"]
  %.79 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.63, %"loop.1"]
  %.80 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.66, %"loop.1"]
  %.81 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.69, %"loop.1"]
  %.82 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.72, %"loop.1"]
  %.83 = icmp slt i64 %.35, %.9
  br i1 %.83, label %"loop.2", label %"after.2"
"loop.2":
  %.84 = phi i64 [%.35, %"after.1"], [%.106, %"loop.2"]
  %.85 = phi <8 x float> [%.75, %"after.1"], [%.96, %"loop.2"]
  %.86 = phi <8 x float> [%.76, %"after.1"], [%.99, %"loop.2"]
  %.87 = phi <8 x float> [%.77, %"after.1"], [%.102, %"loop.2"]
  %.88 = phi <8 x float> [%.78, %"after.1"], [%.105, %"loop.2"]
  %.89 = phi <8 x float> [%.79, %"after.1"], [%.89, %"loop.2"]
  %.90 = phi <8 x float> [%.80, %"after.1"], [%.90, %"loop.2"]
  %.91 = phi <8 x float> [%.81, %"after.1"], [%.91, %"loop.2"]
  %.92 = phi <8 x float> [%.82, %"after.1"], [%.92, %"loop.2"]
  %.93 = mul i64 %.84, %.13
  %.94 = getelementptr i8, ptr %.34, i64 %.93
  %.95 = load <8 x float>, ptr %.94, align 4
  %.96 = fadd <8 x float> %.85, %.95
  %.97 = getelementptr i8, ptr %.94, i64 32
  %.98 = load <8 x float>, ptr %.97, align 4
  %.99 = fadd <8 x float> %.86, %.98
  %.100 = getelementptr i8, ptr %.94, i64 64
  %.101 = load <8 x float>, ptr %.100, align 4
  %.102 = fadd <8 x float> %.87, %.101
  %.103 = getelementptr i8, ptr %.94, i64 96
  %.104 = load <8 x float>, ptr %.103, align 4
  %.105 = fadd <8 x float> %.88, %.104
  %.106 = add i64 %.84, 1
  %.107 = icmp slt i64 %.106, %.9
  br i1 %.107, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.108 = phi <8 x float> [%.75, %"after.1"], [%.96, %"loop.2"]
  %.109 = phi <8 x float> [%.76, %"after.1"], [%.99, %"loop.2"]
  %.110 = phi <8 x float> [%.77, %"after.1"], [%.102, %"loop.2"]
  %.111 = phi <8 x float> [%.78, %"after.1"], [%.105, %"loop.2"]
  %.112 = phi <8 x float> [%.79, %"after.1"], [%.89, %"loop.2"]
  %.113 = phi <8 x float> [%.80, %"after.1"], [%.90, %"loop.2"]
  %.114 = phi <8 x float> [%.81, %"after.1"], [%.91, %"loop.2"]
  %.115 = phi <8 x float> [%.82, %"after.1"], [%.92, %"loop.2"]
  %.116 = sitofp i64 %.9 to float
  %.117 = insertelement <8 x float> poison, float %.116, i32 0
  %.118 = shufflevector <8 x float> %.117, <8 x float> poison, <8 x i32> zeroinitializer
  %.119 = fadd <8 x float> %.108, %.112
  %.120 = fdiv <8 x float> %.119, %.118
  %.121 = add i64 %.30, %.26
  %.122 = mul i64 %.121, 4
  %.123 = getelementptr i8, ptr %.5, i64 %.122
  store <8 x float> %.120, ptr %.123, align 4
  %.124 = fadd <8 x float> %.109, %.113
  %.125 = fdiv <8 x float> %.124, %.118
  %.126 = add i64 %.26, 8
  %.127 = add i64 %.30, %.126
  %.128 = mul i64 %.127, 4
  %.129 = getelementptr i8, ptr %.5, i64 %.128
  store <8 x float> %.125, ptr %.129, align 4
  %.130 = fadd <8 x float> %.110, %.114
  %.131 = fdiv <8 x float> %.130, %.118
  %.132 = add i64 %.26, 16
  %.133 = add i64 %.30, %.132
  %.134 = mul i64 %.133, 4
  %.135 = getelementptr i8, ptr %.5, i64 %.134
  store <8 x float> %.131, ptr %.135, align 4
  %.136 = fadd <8 x float> %.111, %.115
  %.137 = fdiv <8 x float> %.136, %.118
  %.138 = add i64 %.26, 24
  %.139 = add i64 %.30, %.138
  %.140 = mul i64 %.139, 4
  %.141 = getelementptr i8, ptr %.5, i64 %.140
  store <8 x float> %.137, ptr %.141, align 4
  br label %"endif"
"loop.3":
  %.143 = phi i64 [%.26, %"else"], [%.193, %"after.5"]
  %.144 = sub i64 %.11, %.143
  %.145 = icmp slt i64 %.144, 0
  %.146 = select i1 %.145, i64 0, i64 %.144
  %.147 = icmp slt i64 %.146, 8
  %.148 = select i1 %.147, i64 %.146, i64 8
  %.149 = trunc i64 %.148 to i32
  %.150 = insertelement <8 x i32> poison, i32 %.149, i32 0
  %.151 = shufflevector <8 x i32> %.150, <8 x i32> poison, <8 x i32> zeroinitializer
  %.152 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.151
  %.153 = mul i64 %.143, 4
  %.154 = getelementptr i8, ptr %.29, i64 %.153
  %.155 = and i64 %.9, -2
  %.156 = icmp slt i64 0, %.155
  br i1 %.156, label %"loop.4", label %"after.4"
"after.3":
  br label %"endif"
"loop.4":
  %.157 = phi i64 [0, %"loop.3"], [%.169, %"loop.4"]
  %.158 = phi <8 x float> [splat (float 0x0000000000000000), %"loop.3"], [%.163, %"loop.4"]
  %.159 = phi <8 x float> [splat (float 0x0000000000000000), %"loop.3"], [%.168, %"loop.4"]
  %.160 = mul i64 %.157, %.13
  %.161 = getelementptr i8, ptr %.154, i64 %.160
  %.162 = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %.161, i32 4, <8 x i1> %.152, <8 x float> zeroinitializer)
  %.163 = fadd <8 x float> %.158, %.162
  %.164 = add i64 %.157, 1
  %.165 = mul i64 %.164, %.13
  %.166 = getelementptr i8, ptr %.154, i64 %.165
  %.167 = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %.166, i32 4, <8 x i1> %.152, <8 x float> zeroinitializer)
  %.168 = fadd <8 x float> %.159, %.167
  %.169 = add i64 %.157, 2
  %.170 = icmp slt i64 %.169, %.155
  br i1 %.170, label %"loop.4", label %"after.4", !llvm.loop !2
"after.4":
  %.171 = phi <8 x float> [splat (float 0x0000000000000000), %"loop.3"], [%.163, %"loop.4"]
  %.172 = phi <8 x float> [splat (float 0x0000000000000000), %"loop.3"], [%.168, %"loop.4"]
  %.173 = icmp slt i64 %.155, %.9
  br i1 %.173, label %"loop.5", label %"after.5"
"loop.5":
  %.174 = phi i64 [%.155, %"after.4"], [%.181, %"loop.5"]
  %.175 = phi <8 x float> [%.171, %"after.4"], [%.180, %"loop.5"]
  %.176 = phi <8 x float> [%.172, %"after.4"], [%.176, %"loop.5"]
  %.177 = mul i64 %.174, %.13
  %.178 = getelementptr i8, ptr %.154, i64 %.177
  %.179 = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %.178, i32 4, <8 x i1> %.152, <8 x float> zeroinitializer)
  %.180 = fadd <8 x float> %.175, %.179
  %.181 = add i64 %.174, 1
  %.182 = icmp slt i64 %.181, %.9
  br i1 %.182, label %"loop.5", label %"after.5", !llvm.loop !2
"after.5":
  %.183 = phi <8 x float> [%.171, %"after.4"], [%.180, %"loop.5"]
  %.184 = phi <8 x float> [%.172, %"after.4"], [%.176, %"loop.5"]
  %.185 = sitofp i64 %.9 to float
  %.186 = insertelement <8 x float> poison, float %.185, i32 0
  %.187 = shufflevector <8 x float> %.186, <8 x float> poison, <8 x i32> zeroinitializer
  %.188 = fadd <8 x float> %.183, %.184
  %.189 = fdiv <8 x float> %.188, %.187
  %.190 = add i64 %.30, %.143
  %.191 = mul i64 %.190, 4
  %.192 = getelementptr i8, ptr %.5, i64 %.191
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %.189, ptr %.192, i32 4, <8 x i1> %.152)
  %.193 = add i64 %.143, 8
  %.194 = icmp slt i64 %.193, %.11
  br i1 %.194, label %"loop.3", label %"after.3", !llvm.loop !2
}
declare <8 x float> @"llvm.masked.load.v8f32.p0"(ptr, i32, <8 x i1>, <8 x float>)
declare void @"llvm.masked.store.v8f32.p0"(<8 x float>, ptr, i32, <8 x i1>)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
