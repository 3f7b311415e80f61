; --- window_multiply_HASH, effort vectors
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"window_multiply_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = load i64, ptr %a0
  %.2 = inttoptr i64 %.1 to ptr
  %.3 = getelementptr i8, ptr %a0, i64 8
  %.4 = load i64, ptr %.3
  %.5 = inttoptr i64 %.4 to ptr
  %.6 = getelementptr i8, ptr %a0, i64 16
  %.7 = load i64, ptr %.6
  %.8 = inttoptr i64 %.7 to ptr
  %.9 = getelementptr i8, ptr %a0, i64 24
  %.10 = load i64, ptr %.9
  %.11 = getelementptr i8, ptr %a0, i64 32
  %.12 = load i64, ptr %.11
  %.13 = getelementptr i8, ptr %a0, i64 40
  %.14 = load i64, ptr %.13
  %.15 = getelementptr i8, ptr %a0, i64 48
  %.16 = load i64, ptr %.15
  %.17 = getelementptr i8, ptr %a0, i64 56
  %.18 = load i64, ptr %.17
  %.19 = getelementptr i8, ptr %a0, i64 64
  %.20 = load i64, ptr %.19
  %.21 = getelementptr i8, ptr %a0, i64 72
  %.22 = load i64, ptr %.21
  %.23 = getelementptr i8, ptr %a0, i64 80
  %.24 = load i64, ptr %.23
  %.25 = getelementptr i8, ptr %a0, i64 88
  %.26 = load i64, ptr %.25
  %.27 = getelementptr i8, ptr %a0, i64 96
  %.28 = load i64, ptr %.27
  %.29 = getelementptr i8, ptr %a0, i64 104
  %.30 = load i64, ptr %.29
  %.31 = getelementptr i8, ptr %a0, i64 112
  %.32 = load i64, ptr %.31
  %.33 = getelementptr i8, ptr %a0, i64 120
  %.34 = load i64, ptr %.33
  %.35 = getelementptr i8, ptr %a0, i64 128
  %.36 = load i64, ptr %.35
  %.37 = getelementptr i8, ptr %a0, i64 136
  %.38 = load i64, ptr %.37
  %.39 = getelementptr i8, ptr %a0, i64 144
  %.40 = load i64, ptr %.39
  %.41 = getelementptr i8, ptr %a0, i64 152
  %.42 = load i64, ptr %.41
  %.43 = getelementptr i8, ptr %a0, i64 160
  %.44 = load i64, ptr %.43
  %.45 = getelementptr i8, ptr %a0, i64 168
  %.46 = load i64, ptr %.45
  %.47 = getelementptr i8, ptr %a0, i64 176
  %.48 = load i64, ptr %.47
  %.49 = getelementptr i8, ptr %a0, i64 184
  %.50 = load i64, ptr %.49
  %.51 = getelementptr i8, ptr %a0, i64 192
  %.52 = load i64, ptr %.51
  %.53 = getelementptr i8, ptr %a0, i64 200
  %.54 = load i64, ptr %.53
  %.55 = getelementptr i8, ptr %a0, i64 208
  %.56 = load i64, ptr %.55
  %.57 = getelementptr i8, ptr %a0, i64 216
  %.58 = load i64, ptr %.57
  %.59 = getelementptr i8, ptr %a0, i64 224
  %.60 = load i64, ptr %.59
  %.61 = getelementptr i8, ptr %a0, i64 232
  %.62 = load i64, ptr %.61
  %.63 = inttoptr i64 %.62 to ptr
  %.64 = getelementptr i8, ptr %a0, i64 240
  %.65 = load i64, ptr %.64
  %.66 = alloca [32 x i8], align 64
  %.67 = alloca [32 x i8], align 64
  store <8 x float> splat (float 0x0000000000000000), ptr %.66, align 4
  %.68 = mul i64 %.10, %.20
  %.69 = mul i64 %.68, %.22
  %.70 = mul i64 %.69, %.60
  %.71 = mul i64 %.70, %a1
  %.72 = udiv i64 %.71, %a2
  %.73 = add i64 %a1, 1
  %.74 = mul i64 %.70, %.73
  %.75 = udiv i64 %.74, %a2
  %.76 = icmp slt i64 %.72, %.75
  br i1 %.76, label %"loop", label %"after"
"loop":
  %.77 = phi i64 [%.72, %"entry"], [%.358, %"endif.1"]
  %.78 = udiv i64 %.77, %.60
  %.79 = urem i64 %.77, %.60
  %.80 = udiv i64 %.78, %.22
  %.81 = urem i64 %.78, %.22
  %.82 = udiv i64 %.80, %.20
  %.83 = urem i64 %.80, %.20
  %.84 = sub i64 %.83, %.26
  %.85 = sub i64 0, %.84
  %.86 = icmp slt i64 0, %.85
  %.87 = select i1 %.86, i64 %.85, i64 0
  %.88 = icmp slt i64 %.87, 1
  %.89 = select i1 %.88, i64 %.87, i64 1
  %.90 = sub i64 %.12, %.84
  %.91 = icmp slt i64 0, %.90
  %.92 = select i1 %.91, i64 %.90, i64 0
  %.93 = icmp slt i64 %.92, 1
  %.94 = select i1 %.93, i64 %.92, i64 1
  %.95 = icmp slt i64 %.89, %.94
  %.96 = select i1 %.95, i64 %.94, i64 %.89
  %.97 = sub i64 %.32, %.84
  %.98 = icmp slt i64 0, %.97
  %.99 = select i1 %.98, i64 %.97, i64 0
  %.100 = icmp slt i64 %.99, 1
  %.101 = select i1 %.100, i64 %.99, i64 1
  %.102 = sub i64 %.38, %.84
  %.103 = icmp slt i64 0, %.102
  %.104 = select i1 %.103, i64 %.102, i64 0
  %.105 = icmp slt i64 %.104, 1
  %.106 = select i1 %.105, i64 %.104, i64 1
  %.107 = icmp slt i64 %.101, %.106
  %.108 = select i1 %.107, i64 %.106, i64 %.101
  %.109 = sub i64 %.108, %.101
  %.110 = sub i64 %.81, %.28
  %.111 = sub i64 0, %.110
  %.112 = icmp slt i64 0, %.111
  %.113 = select i1 %.112, i64 %.111, i64 0
  %.114 = icmp slt i64 %.113, 1
  %.115 = select i1 %.114, i64 %.113, i64 1
  %.116 = sub i64 %.14, %.110
  %.117 = icmp slt i64 0, %.116
  %.118 = select i1 %.117, i64 %.116, i64 0
  %.119 = icmp slt i64 %.118, 1
  %.120 = select i1 %.119, i64 %.118, i64 1
  %.121 = icmp slt i64 %.115, %.120
  %.122 = select i1 %.121, i64 %.120, i64 %.115
  %.123 = sub i64 %.34, %.110
  %.124 = icmp slt i64 0, %.123
  %.125 = select i1 %.124, i64 %.123, i64 0
  %.126 = icmp slt i64 %.125, 1
  %.127 = select i1 %.126, i64 %.125, i64 1
  %.128 = sub i64 %.40, %.110
  %.129 = icmp slt i64 0, %.128
  %.130 = select i1 %.129, i64 %.128, i64 0
  %.131 = icmp slt i64 %.130, 1
  %.132 = select i1 %.131, i64 %.130, i64 1
  %.133 = icmp slt i64 %.127, %.132
  %.134 = select i1 %.133, i64 %.132, i64 %.127
  %.135 = sub i64 %.134, %.127
  %.136 = mul i64 %.82, %.50
  %.137 = getelementptr i8, ptr %.2, i64 %.136
  %.138 = mul i64 %.82, %.58
  %.139 = mul i64 %.83, %.56
  %.140 = mul i64 %.81, %.54
  %.141 = getelementptr i8, ptr %.5, i64 %.138
  %.142 = getelementptr i8, ptr %.141, i64 %.139
  %.143 = getelementptr i8, ptr %.142, i64 %.140
  %.144 = udiv i64 %.18, 8
  %.145 = mul i64 %.79, 32
  %.146 = add i64 %.145, 32
  %.147 = icmp slt i64 %.146, %.144
  %.148 = select i1 %.147, i64 %.146, i64 %.144
  %.149 = icmp slt i64 0, %.24
  br i1 %.149, label %"loop.1", label %"after.1"
"after":
  ret void
"loop.1":
  %.150 = phi i64 [0, %"loop"], [%.275, %"after.2"]
  %.151 = sub i64 %.150, %.30
  %.152 = icmp slt i64 %.145, %.148
  br i1 %.152, label %"loop.2", label %"after.2"
"after.1":
  %.277 = urem i64 %.18, 8
  %.278 = add i64 %.79, 1
  %.279 = icmp eq i64 %.278, %.60
  %.280 = icmp slt i64 0, %.277
  %.281 = and i1 %.279, %.280
  br i1 %.281, label %"then", label %"endif.1"
"loop.2":
  %.153 = phi i64 [%.145, %"loop.1"], [%.273, %"endif"]
  %.154 = mul i64 %.153, 8
  %.155 = icmp slt i64 -2, %.151
  %.156 = add i64 %.151, 1
  %.157 = icmp slt i64 %.156, %.16
  %.158 = and i1 %.155, %.157
  %.159 = icmp slt i64 %.150, %.24
  %.160 = and i1 %.158, %.159
  br i1 %.160, label %"if", label %"else"
"after.2":
  %.275 = add i64 %.150, 1
  %.276 = icmp slt i64 %.275, %.24
  br i1 %.276, label %"loop.1", label %"after.1", !llvm.loop !2
"if":
  %.161 = mul i64 %.154, 4
  %.162 = icmp slt i64 %.115, %.122
  br i1 %.162, label %"loop.3", label %"after.3"
"else":
  %.211 = mul i64 %.154, 4
  %.212 = icmp slt i64 %.115, %.122
  br i1 %.212, label %"loop.4", label %"after.4"
"endif":
  %.273 = add i64 %.153, 1
  %.274 = icmp slt i64 %.273, %.148
  br i1 %.274, label %"loop.2", label %"after.2", !llvm.loop !2
"loop.3":
  %.163 = phi i64 [%.115, %"if"], [%.202, %"loop.3"]
  %.164 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.201, %"loop.3"]
  %.165 = add i64 %.110, %.163
  %.166 = add i64 0, %.163
  %.167 = mul i64 %.166, 3
  %.168 = add i64 %.84, 0
  %.169 = mul i64 %.168, %.48
  %.170 = mul i64 %.165, %.46
  %.171 = getelementptr i8, ptr %.137, i64 %.161
  %.172 = getelementptr i8, ptr %.171, i64 %.169
  %.173 = getelementptr i8, ptr %.172, i64 %.170
  %.174 = mul i64 %.154, 4
  %.175 = mul i64 %.151, %.44
  %.176 = getelementptr i8, ptr %.173, i64 %.175
  %.177 = mul i64 %.174, 3
  %.178 = mul i64 %.167, 32
  %.179 = getelementptr i8, ptr %.8, i64 %.177
  %.180 = getelementptr i8, ptr %.179, i64 %.178
  %.181 = load <8 x float>, ptr %.180, align 4
  %.182 = getelementptr i8, ptr %.180, i64 32
  %.183 = load <8 x float>, ptr %.182, align 4
  %.184 = getelementptr i8, ptr %.180, i64 64
  %.185 = load <8 x float>, ptr %.184, align 4
  %.186 = call ptr asm "", "=r,0"(ptr %.176)
  %.187 = icmp ult i64 %.151, %.16
  %.188 = select i1 %.187, ptr %.186, ptr %.66
  %.189 = load <8 x float>, ptr %.188, align 4
  %.190 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.189, <8 x float> %.181, <8 x float> %.164)
  %.191 = add i64 %.151, 1
  %.192 = getelementptr i8, ptr %.186, i64 %.44
  %.193 = load <8 x float>, ptr %.192, align 4
  %.194 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.193, <8 x float> %.183, <8 x float> %.190)
  %.195 = add i64 %.151, 2
  %.196 = mul i64 %.44, 2
  %.197 = getelementptr i8, ptr %.186, i64 %.196
  %.198 = icmp ult i64 %.195, %.16
  %.199 = select i1 %.198, ptr %.197, ptr %.66
  %.200 = load <8 x float>, ptr %.199, align 4
  %.201 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.200, <8 x float> %.185, <8 x float> %.194)
  %.202 = add i64 %.163, 1
  %.203 = icmp slt i64 %.202, %.122
  br i1 %.203, label %"loop.3", label %"after.3", !llvm.loop !2
"after.3":
  %.204 = phi <8 x float> [splat (float 0x0000000000000000), %"if"], [%.201, %"loop.3"]
  %.205 = mul i64 %.154, 4
  %.206 = mul i64 %.150, %.52
  %.207 = getelementptr i8, ptr %.143, i64 %.205
  %.208 = getelementptr i8, ptr %.207, i64 %.206
  %.209 = mul i64 %.52, 0
  %.210 = getelementptr i8, ptr %.208, i64 %.209
  store <8 x float> %.204, ptr %.210, align 4
  br label %"endif"
"loop.4":
  %.213 = phi i64 [%.115, %"else"], [%.254, %"loop.4"]
  %.214 = phi <8 x float> [splat (float 0x0000000000000000), %"else"], [%.253, %"loop.4"]
  %.215 = add i64 %.110, %.213
  %.216 = add i64 0, %.213
  %.217 = mul i64 %.216, 3
  %.218 = add i64 %.84, 0
  %.219 = mul i64 %.218, %.48
  %.220 = mul i64 %.215, %.46
  %.221 = getelementptr i8, ptr %.137, i64 %.211
  %.222 = getelementptr i8, ptr %.221, i64 %.219
  %.223 = getelementptr i8, ptr %.222, i64 %.220
  %.224 = mul i64 %.154, 4
  %.225 = mul i64 %.224, 3
  %.226 = mul i64 %.217, 32
  %.227 = getelementptr i8, ptr %.8, i64 %.225
  %.228 = getelementptr i8, ptr %.227, i64 %.226
  %.229 = load <8 x float>, ptr %.228, align 4
  %.230 = getelementptr i8, ptr %.228, i64 32
  %.231 = load <8 x float>, ptr %.230, align 4
  %.232 = getelementptr i8, ptr %.228, i64 64
  %.233 = load <8 x float>, ptr %.232, align 4
  %.234 = mul i64 %.151, %.44
  %.235 = getelementptr i8, ptr %.223, i64 %.234
  %.236 = icmp ult i64 %.151, %.16
  %.237 = select i1 %.236, ptr %.235, ptr %.66
  %.238 = load <8 x float>, ptr %.237, align 4
  %.239 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.238, <8 x float> %.229, <8 x float> %.214)
  %.240 = add i64 %.151, 1
  %.241 = mul i64 %.240, %.44
  %.242 = getelementptr i8, ptr %.223, i64 %.241
  %.243 = icmp ult i64 %.240, %.16
  %.244 = select i1 %.243, ptr %.242, ptr %.66
  %.245 = load <8 x float>, ptr %.244, align 4
  %.246 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.245, <8 x float> %.231, <8 x float> %.239)
  %.247 = add i64 %.151, 2
  %.248 = mul i64 %.247, %.44
  %.249 = getelementptr i8, ptr %.223, i64 %.248
  %.250 = icmp ult i64 %.247, %.16
  %.251 = select i1 %.250, ptr %.249, ptr %.66
  %.252 = load <8 x float>, ptr %.251, align 4
  %.253 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.252, <8 x float> %.233, <8 x float> %.246)
  %.254 = add i64 %.213, 1
  %.255 = icmp slt i64 %.254, %.122
  br i1 %.255, label %"loop.4", label %"after.4", !llvm.loop !2
"after.4":
  %.256 = phi <8 x float> [splat (float 0x0000000000000000), %"else"], [%.253, %"loop.4"]
  %.257 = mul i64 %.154, 4
  %.258 = mul i64 %.150, %.52
  %.259 = getelementptr i8, ptr %.143, i64 %.257
  %.260 = getelementptr i8, ptr %.259, i64 %.258
  store <8 x float> %.256, ptr %.67, align 4
  %.261 = sub i64 %.24, %.150
  %.262 = icmp slt i64 1, %.261
  %.263 = select i1 %.262, i64 1, i64 %.261
  %.264 = icmp slt i64 0, %.263
  br i1 %.264, label %"loop.5", label %"after.5"
"loop.5":
  %.265 = phi i64 [0, %"after.4"], [%.271, %"loop.5"]
  %.266 = mul i64 %.265, 32
  %.267 = getelementptr i8, ptr %.67, i64 %.266
  %.268 = load <8 x float>, ptr %.267, align 4
  %.269 = mul i64 %.265, %.52
  %.270 = getelementptr i8, ptr %.260, i64 %.269
  store <8 x float> %.268, ptr %.270, align 4
  %.271 = add i64 %.265, 1
  %.272 = icmp slt i64 %.271, %.263
  br i1 %.272, label %"loop.5", label %"after.5", !llvm.loop !2
"after.5":
  br label %"endif"
"then":
  %.282 = mul i64 %.144, 8
  %.283 = icmp slt i64 %.277, 0
  %.284 = select i1 %.283, i64 0, i64 %.277
  %.285 = icmp slt i64 %.284, 8
  %.286 = select i1 %.285, i64 %.284, i64 8
  %.287 = trunc i64 %.286 to i32
  %.288 = insertelement <8 x i32> poison, i32 %.287, i32 0
  %.289 = shufflevector <8 x i32> %.288, <8 x i32> poison, <8 x i32> zeroinitializer
  %.290 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.289
  %.291 = icmp slt i64 0, %.24
  br i1 %.291, label %"loop.6", label %"after.6"
"endif.1":
  %.358 = add i64 %.77, 1
  %.359 = icmp slt i64 %.358, %.75
  br i1 %.359, label %"loop", label %"after", !llvm.loop !2
"loop.6":
  %.292 = phi i64 [0, %"then"], [%.356, %"after.8"]
  %.293 = sub i64 %.292, %.30
  %.294 = mul i64 %.282, 4
  %.295 = icmp slt i64 %.115, %.122
  br i1 %.295, label %"loop.7", label %"after.7"
"after.6":
  br label %"endif.1"
"loop.7":
  %.296 = phi i64 [%.115, %"loop.6"], [%.337, %"loop.7"]
  %.297 = phi <8 x float> [splat (float 0x0000000000000000), %"loop.6"], [%.336, %"loop.7"]
  %.298 = add i64 %.110, %.296
  %.299 = add i64 0, %.296
  %.300 = mul i64 %.299, 3
  %.301 = add i64 %.84, 0
  %.302 = mul i64 %.301, %.48
  %.303 = mul i64 %.298, %.46
  %.304 = getelementptr i8, ptr %.137, i64 %.294
  %.305 = getelementptr i8, ptr %.304, i64 %.302
  %.306 = getelementptr i8, ptr %.305, i64 %.303
  %.307 = mul i64 %.282, 4
  %.308 = mul i64 %.307, 3
  %.309 = mul i64 %.300, 32
  %.310 = getelementptr i8, ptr %.8, i64 %.308
  %.311 = getelementptr i8, ptr %.310, i64 %.309
  %.312 = load <8 x float>, ptr %.311, align 4
  %.313 = getelementptr i8, ptr %.311, i64 32
  %.314 = load <8 x float>, ptr %.313, align 4
  %.315 = getelementptr i8, ptr %.311, i64 64
  %.316 = load <8 x float>, ptr %.315, align 4
  %.317 = mul i64 %.293, %.44
  %.318 = getelementptr i8, ptr %.306, i64 %.317
  %.319 = icmp ult i64 %.293, %.16
  %.320 = select i1 %.319, ptr %.318, ptr %.66
  %.321 = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %.320, i32 4, <8 x i1> %.290, <8 x float> zeroinitializer)
  %.322 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.321, <8 x float> %.312, <8 x float> %.297)
  %.323 = add i64 %.293, 1
  %.324 = mul i64 %.323, %.44
  %.325 = getelementptr i8, ptr %.306, i64 %.324
  %.326 = icmp ult i64 %.323, %.16
  %.327 = select i1 %.326, ptr %.325, ptr %.66
  %.328 = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %.327, i32 4, <8 x i1> %.290, <8 x float> zeroinitializer)
  %.329 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.328, <8 x float> %.314, <8 x float> %.322)
  %.330 = add i64 %.293, 2
  %.331 = mul i64 %.330, %.44
  %.332 = getelementptr i8, ptr %.306, i64 %.331
  %.333 = icmp ult i64 %.330, %.16
  %.334 = select i1 %.333, ptr %.332, ptr %.66
  %.335 = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %.334, i32 4, <8 x i1> %.290, <8 x float> zeroinitializer)
  %.336 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.335, <8 x float> %.316, <8 x float> %.329)
  %.337 = add i64 %.296, 1
  %.338 = icmp slt i64 %.337, %.122
  br i1 %.338, label %"loop.7", label %"after.7", !llvm.loop !2
"after.7":
  %.339 = phi <8 x float> [splat (float 0x0000000000000000), %"loop.6"], [%.336, %"loop.7"]
  %.340 = mul i64 %.282, 4
  %.341 = mul i64 %.292, %.52
  %.342 = getelementptr i8, ptr %.143, i64 %.340
  %.343 = getelementptr i8, ptr %.342, i64 %.341
  store <8 x float> %.339, ptr %.67, align 4
  %.344 = sub i64 %.24, %.292
  %.345 = icmp slt i64 1, %.344
  %.346 = select i1 %.345, i64 1, i64 %.344
  %.347 = icmp slt i64 0, %.346
  br i1 %.347, label %"loop.8", label %"after.8"
"loop.8":
  %.348 = phi i64 [0, %"after.7"], [%.354, %"loop.8"]
  %.349 = mul i64 %.348, 32
  %.350 = getelementptr i8, ptr %.67, i64 %.349
  %.351 = load <8 x float>, ptr %.350, align 4
  %.352 = mul i64 %.348, %.52
  %.353 = getelementptr i8, ptr %.343, i64 %.352
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %.351, ptr %.353, i32 4, <8 x i1> %.290)
  %.354 = add i64 %.348, 1
  %.355 = icmp slt i64 %.354, %.346
  br i1 %.355, label %"loop.8", label %"after.8", !llvm.loop !2
"after.8":
  %.356 = add i64 %.292, 1
  %.357 = icmp slt i64 %.356, %.24
  br i1 %.357, label %"loop.6", label %"after.6", !llvm.loop !2
}
declare <8 x float> @"llvm.fmuladd.v8f32"(<8 x float>, <8 x float>, <8 x float>)
declare <8 x float> @"llvm.masked.load.v8f32.p0"(ptr, i32, <8 x i1>, <8 x float>)
declare void @"llvm.masked.store.v8f32.p0"(<8 x float>, ptr, i32, <8 x i1>)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
