; --- rnn_HASH, effort all; not shown: row_product, rnn
define internal void @"walk"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, i64 %a5, i64 %a6, i64 %a7) noinline nounwind "prefer-vector-width"="256"
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
  %.14 = getelementptr i8, ptr %a0, i64 48
  %.15 = load i64, ptr %.14
  %.16 = inttoptr i64 %.15 to ptr
  %.17 = getelementptr i8, ptr %a0, i64 56
  %.18 = load i64, ptr %.17
  %.19 = getelementptr i8, ptr %a0, i64 64
  %.20 = load i64, ptr %.19
  %.21 = getelementptr i8, ptr %a0, i64 72
  %.22 = load i64, ptr %.21
  %.23 = inttoptr i64 %.22 to ptr
  %.24 = getelementptr i8, ptr %a0, i64 80
  %.25 = load i64, ptr %.24
  %.26 = getelementptr i8, ptr %a0, i64 88
  %.27 = load i64, ptr %.26
  %.28 = inttoptr i64 %.27 to ptr
  %.29 = getelementptr i8, ptr %a0, i64 96
  %.30 = load i64, ptr %.29
  %.31 = getelementptr i8, ptr %a0, i64 104
  %.32 = load i64, ptr %.31
  %.33 = getelementptr i8, ptr %a0, i64 112
  %.34 = load i64, ptr %.33
  %.35 = getelementptr i8, ptr %a0, i64 120
  %.36 = load i64, ptr %.35
  %.37 = getelementptr i8, ptr %a0, i64 128
  %.38 = load i64, ptr %.37
  %.39 = getelementptr i8, ptr %a0, i64 136
  %.40 = load i64, ptr %.39
  %.41 = getelementptr i8, ptr %a0, i64 144
  %.42 = load i64, ptr %.41
  %.43 = getelementptr i8, ptr %a0, i64 152
  %.44 = load i64, ptr %.43
  %.45 = getelementptr i8, ptr %a0, i64 160
  %.46 = load i64, ptr %.45
  %.47 = getelementptr i8, ptr %a0, i64 168
  %.48 = load i64, ptr %.47
  %.49 = getelementptr i8, ptr %a0, i64 176
  %.50 = load i64, ptr %.49
  %.51 = getelementptr i8, ptr %a0, i64 184
  %.52 = load i64, ptr %.51
  %.53 = getelementptr i8, ptr %a0, i64 192
  %.54 = load i64, ptr %.53
  %.55 = getelementptr i8, ptr %a0, i64 200
  %.56 = load i64, ptr %.55
  %.57 = getelementptr i8, ptr %a0, i64 208
  %.58 = load i64, ptr %.57
  %.59 = getelementptr i8, ptr %a0, i64 216
  %.60 = load i64, ptr %.59
  %.61 = getelementptr i8, ptr %a0, i64 224
  %.62 = load i64, ptr %.61
  %.63 = getelementptr i8, ptr %a0, i64 232
  %.64 = load i64, ptr %.63
  %.65 = getelementptr i8, ptr %a0, i64 240
  %.66 = load i64, ptr %.65
  %.67 = getelementptr i8, ptr %a0, i64 248
  %.68 = load i64, ptr %.67
  %.69 = inttoptr i64 %.68 to ptr
  %.70 = getelementptr i8, ptr %a0, i64 256
  %.71 = load i64, ptr %.70
  %.72 = getelementptr i8, ptr %a0, i64 264
  %.73 = load i64, ptr %.72
  %.74 = inttoptr i64 %.73 to ptr
  %.75 = getelementptr i8, ptr %a0, i64 272
  %.76 = load i64, ptr %.75
  %.77 = getelementptr i8, ptr %a0, i64 280
  %.78 = load i64, ptr %.77
  %.79 = getelementptr i8, ptr %a0, i64 288
  %.80 = load i64, ptr %.79
  %.81 = getelementptr i8, ptr %a0, i64 296
  %.82 = load i64, ptr %.81
  %.83 = getelementptr i8, ptr %a0, i64 304
  %.84 = load i64, ptr %.83
  %.85 = getelementptr i8, ptr %a0, i64 312
  %.86 = load i64, ptr %.85
  %.87 = getelementptr i8, ptr %a0, i64 320
  %.88 = load i64, ptr %.87
  %.89 = getelementptr i8, ptr %a0, i64 328
  %.90 = load i64, ptr %.89
  %.91 = getelementptr i8, ptr %a0, i64 336
  %.92 = load i64, ptr %.91
  %.93 = getelementptr i8, ptr %a0, i64 344
  %.94 = load i64, ptr %.93
  %.95 = getelementptr i8, ptr %a0, i64 352
  %.96 = load i64, ptr %.95
  %.97 = getelementptr i8, ptr %a0, i64 360
  %.98 = load i64, ptr %.97
  %.99 = inttoptr i64 %.98 to ptr
  %.100 = getelementptr i8, ptr %a0, i64 368
  %.101 = load i64, ptr %.100
  %.102 = getelementptr i8, ptr %a0, i64 376
  %.103 = load i64, ptr %.102
  %.104 = getelementptr i8, ptr %a0, i64 384
  %.105 = load i64, ptr %.104
  %.106 = getelementptr i8, ptr %a0, i64 392
  %.107 = load i64, ptr %.106
  %.108 = getelementptr i8, ptr %a0, i64 400
  %.109 = load i64, ptr %.108
  %.110 = inttoptr i64 %.109 to ptr
  %.111 = getelementptr i8, ptr %a0, i64 408
  %.112 = load i64, ptr %.111
  %.113 = getelementptr i8, ptr %a0, i64 416
  %.114 = load i64, ptr %.113
  %.115 = udiv i64 %a1, %.92
  %.116 = urem i64 %a1, %.92
  %.117 = mul i64 %.116, %.94
  %.118 = icmp slt i64 %.116, %.96
  %.119 = select i1 %.118, i64 %.116, i64 %.96
  %.120 = add i64 %.117, %.119
  %.121 = icmp slt i64 %.116, %.96
  %.122 = select i1 %.121, i64 1, i64 0
  %.123 = add i64 %.94, %.122
  %.124 = mul i64 %.123, 64
  %.125 = mul i64 %.115, %.50
  %.126 = mul i64 %.120, %.52
  %.127 = add i64 %.125, %.126
  %.128 = mul i64 %.115, %.18
  %.129 = getelementptr i8, ptr %.16, i64 %.128
  %.130 = mul i64 %.115, %.25
  %.131 = getelementptr i8, ptr %.23, i64 %.130
  %.132 = getelementptr i8, ptr %a2, i64 %.105
  %.133 = getelementptr i8, ptr %a2, i64 %.107
  %.134 = or i64 %.115, %.88
  %.135 = icmp slt i64 0, %.134
  %.136 = icmp eq i64 %a4, 0
  %length.233 = alloca i64
  %length.324 = alloca i64
  br i1 %.136, label %"then", label %"endif"
"then":
  %.137 = icmp ne i64 %.30, 0
  br i1 %.137, label %"then.1", label %"endif.1"
"endif":
  %.173 = mul i64 %.115, %.11
  %.174 = mul i64 %.120, %.9
  %.175 = getelementptr i8, ptr %.5, i64 %.173
  %.176 = getelementptr i8, ptr %.175, i64 %.174
  %.177 = mul i64 %.115, %.58
  %.178 = mul i64 %.120, %.60
  %.179 = add i64 %.177, %.178
  %.180 = icmp slt i64 %a4, 1
  %.181 = select i1 %.180, i64 1, i64 %a4
  %.182 = icmp slt i64 %.181, %a5
  br i1 %.182, label %"loop.2", label %"after.2"
"then.1":
  %.138 = icmp slt i64 0, %.123
  br i1 %.138, label %"loop", label %"after"
"endif.1":
  %.150 = mul i64 %a6, 32
  %.151 = mul i64 %a7, 32
  %.152 = icmp slt i64 0, %.123
  br i1 %.152, label %"loop.1", label %"after.1"
"loop":
  %.139 = phi i64 [0, %"then.1"], [%.148, %"endif.2"]
  %.140 = inttoptr i64 %.30 to ptr
  %.141 = add i64 %.120, %.139
  %.142 = mul i64 %.141, 4
  %.143 = getelementptr i8, ptr %.140, i64 %.142
  %.144 = load i32, ptr %.143, align 4
  %.145 = sext i32 %.144 to i64
  %.146 = icmp ugt i64 %.145, %.34
  br i1 %.146, label %"then.2", label %"endif.2"
"after":
  br label %"endif.1"
"then.2":
  %.147 = inttoptr i64 %.32 to ptr
  store i64 5, ptr %.147, align 8
  br label %"endif.2"
"endif.2":
  %.148 = add i64 %.139, 1
  %.149 = icmp slt i64 %.148, %.123
  br i1 %.149, label %"loop", label %"after", !llvm.loop !2
"loop.1":
  %.153 = phi i64 [0, %"endif.1"], [%.171, %"endif.3"]
  %.154 = mul i64 %.153, %.40
  %.155 = getelementptr i8, ptr %a2, i64 %.154
  %.156 = getelementptr i8, ptr %.155, i64 %.150
  %.157 = sub i64 %.151, %.150
  call void @"llvm.memset.p0.i64"(ptr %.156, i8 0, i64 %.157, i1 0)
  %.158 = icmp ne i64 %.42, 0
  br i1 %.158, label %"then.3", label %"endif.3"
"after.1":
  br label %"endif"
"then.3":
  %.159 = inttoptr i64 %.42 to ptr
  %.160 = mul i64 %.153, %.52
  %.161 = getelementptr i8, ptr %.159, i64 %.127
  %.162 = getelementptr i8, ptr %.161, i64 %.160
  %.163 = mul i64 %a6, 32
  %.164 = mul i64 %a7, 32
  %.165 = mul i64 %.36, 4
  %.166 = icmp slt i64 %.164, %.165
  %.167 = select i1 %.166, i64 %.164, i64 %.165
  %.168 = sub i64 %.167, %.163
  %.169 = getelementptr i8, ptr %.162, i64 %.163
  %.170 = getelementptr i8, ptr %.155, i64 %.163
  call void @"llvm.memcpy.p0.p0.i64"(ptr %.170, ptr %.169, i64 %.168, i1 0)
  br label %"endif.3"
"endif.3":
  %.171 = add i64 %.153, 1
  %.172 = icmp slt i64 %.171, %.123
  br i1 %.172, label %"loop.1", label %"after.1", !llvm.loop !2
"loop.2":
  %.183 = phi i64 [%.181, %"endif"], [%.308, %"after.5"]
  %.184 = and i64 %.183, 1
  %.185 = mul i64 %.184, %a3
  %.186 = getelementptr i8, ptr %a2, i64 %.185
  %.187 = sub i64 %a3, %.185
  %.188 = getelementptr i8, ptr %a2, i64 %.187
  %.189 = sub i64 %.183, 1
  %.190 = sub i64 %.34, %.183
  %.191 = select i1 %.135, i64 %.190, i64 %.189
  %.192 = mul i64 %.191, %.7
  %.193 = getelementptr i8, ptr %.176, i64 %.192
  %.194 = mul i64 %.191, %.56
  %.195 = add i64 %.179, %.194
  %.196 = udiv i64 %a6, 2
  %.197 = add i64 %a7, 1
  %.198 = udiv i64 %.197, 2
  %.199 = sub i64 %.198, %.196
  %.200 = mul i64 %.36, 64
  %.201 = mul i64 %.196, %.200
  %.202 = getelementptr i8, ptr %.129, i64 %.201
  %.203 = mul i64 %.196, %.124
  %.204 = getelementptr i8, ptr %.132, i64 %.203
  %.205 = icmp eq i64 %.123, 1
  br i1 %.205, label %"if", label %"else"
"after.2":
  %.310 = add i64 %.34, 1
  %.311 = icmp eq i64 %a5, %.310
  br i1 %.311, label %"then.8", label %"endif.10"
"if":
  call void @"row_product"(ptr %.188, ptr %.202, i64 %.36, i64 %.199, i64 %.200, ptr %.204, i64 %.184)
  br label %"endif.4"
"else":
  %.206 = add i64 %.123, 5
  %.207 = udiv i64 %.206, 6
  %.208 = icmp slt i64 0, %.199
  br i1 %.208, label %"loop.3", label %"after.3"
"endif.4":
  %.231 = icmp slt i64 0, %.123
  br i1 %.231, label %"loop.5", label %"after.5"
"loop.3":
  %.209 = phi i64 [0, %"else"], [%.229, %"after.4"]
  %.210 = icmp slt i64 0, %.207
  br i1 %.210, label %"loop.4", label %"after.4"
"after.3":
  br label %"endif.4"
"loop.4":
  %.211 = phi i64 [0, %"loop.3"], [%.227, %"loop.4"]
  %.212 = mul i64 %.123, %.211
  %.213 = udiv i64 %.212, %.207
  %.214 = add i64 %.211, 1
  %.215 = mul i64 %.123, %.214
  %.216 = udiv i64 %.215, %.207
  %.217 = mul i64 %.209, %.200
  %.218 = getelementptr i8, ptr %.202, i64 %.217
  %.219 = mul i64 %.209, %.124
  %.220 = mul i64 %.213, 64
  %.221 = getelementptr i8, ptr %.204, i64 %.219
  %.222 = getelementptr i8, ptr %.221, i64 %.220
  %.223 = mul i64 %.213, %.40
  %.224 = getelementptr i8, ptr %.188, i64 %.223
  %.225 = getelementptr i8, ptr %.218, i64 %.200
  %.226 = sub i64 %.216, %.213
  call void %.2(ptr %.224, i64 %.40, ptr %.218, i64 64, i64 %.36, ptr %.28, i64 1, ptr %.222, i64 0, ptr %.225, i64 64, i64 %.226, i64 2)
  %.227 = add i64 %.211, 1
  %.228 = icmp slt i64 %.227, %.207
  br i1 %.228, label %"loop.4", label %"after.4", !llvm.loop !2
"after.4":
  %.229 = add i64 %.209, 1
  %.230 = icmp slt i64 %.229, %.199
  br i1 %.230, label %"loop.3", label %"after.3", !llvm.loop !2
"loop.5":
  %.232 = phi i64 [0, %"endif.4"], [%.306, %"endif.7"]
  store i64 %.34, ptr %length.233
  %.234 = icmp ne i64 %.30, 0
  br i1 %.234, label %"then.4", label %"endif.5"
"after.5":
  %.308 = add i64 %.183, 1
  %.309 = icmp slt i64 %.308, %a5
  br i1 %.309, label %"loop.2", label %"after.2", !llvm.loop !2
"then.4":
  %.235 = inttoptr i64 %.30 to ptr
  %.236 = add i64 %.120, %.232
  %.237 = mul i64 %.236, 4
  %.238 = getelementptr i8, ptr %.235, i64 %.237
  %.239 = load i32, ptr %.238, align 4
  %.240 = sext i32 %.239 to i64
  %.241 = icmp slt i64 %.240, 0
  %.242 = select i1 %.241, i64 0, i64 %.240
  %.243 = icmp slt i64 %.242, %.34
  %.244 = select i1 %.243, i64 %.242, i64 %.34
  store i64 %.244, ptr %length.233
  br label %"endif.5"
"endif.5":
  %.245 = load i64, ptr %length.233
  %.246 = icmp slt i64 %.191, %.245
  %.247 = mul i64 %.232, %.9
  %.248 = getelementptr i8, ptr %.193, i64 %.247
  %.249 = mul i64 %.232, 64
  %.250 = getelementptr i8, ptr %.132, i64 %.249
  %.251 = mul i64 %.232, %.40
  br i1 %.246, label %"then.5", label %"endif.6"
"then.5":
  %.252 = icmp slt i64 %a6, %a7
  br i1 %.252, label %"loop.6", label %"after.6"
"endif.6":
  %.276 = mul i64 %.232, %.60
  %.277 = add i64 %.195, %.276
  %.278 = icmp ne i64 %.54, 0
  %.279 = inttoptr i64 %.54 to ptr
  %.280 = getelementptr i8, ptr %.279, i64 %.277
  %.281 = getelementptr i8, ptr %.186, i64 %.251
  br i1 %.246, label %"if.1", label %"else.1"
"loop.6":
  %.253 = phi i64 [%a6, %"then.5"], [%.274, %"loop.6"]
  %.254 = mul i64 %.253, 32
  %.255 = add i64 %.251, %.254
  %.256 = urem i64 %.253, 2
  %.257 = mul i64 %.256, 32
  %.258 = udiv i64 %.253, 2
  %.259 = mul i64 %.258, %.13
  %.260 = add i64 %.259, %.257
  %.261 = getelementptr i8, ptr %.248, i64 %.260
  %.262 = load <8 x float>, ptr %.261, align 4
  %.263 = urem i64 %.253, 2
  %.264 = mul i64 %.263, 32
  %.265 = udiv i64 %.253, 2
  %.266 = mul i64 %.265, %.124
  %.267 = add i64 %.266, %.264
  %.268 = getelementptr i8, ptr %.250, i64 %.267
  %.269 = load <8 x float>, ptr %.268, align 4
  %.270 = fadd <8 x float> %.262, %.269
  %.271 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %.270
  %.272 = select <8 x i1> %.271, <8 x float> splat (float 0x0000000000000000), <8 x float> %.270
  %.273 = getelementptr i8, ptr %.186, i64 %.255
  store <8 x float> %.272, ptr %.273, align 4
  %.274 = add i64 %.253, 1
  %.275 = icmp slt i64 %.274, %a7
  br i1 %.275, label %"loop.6", label %"after.6", !llvm.loop !2
"after.6":
  br label %"endif.6"
"if.1":
  br i1 %.278, label %"then.6", label %"endif.8"
"else.1":
  %.290 = getelementptr i8, ptr %.188, i64 %.251
  %.291 = mul i64 %a6, 32
  %.292 = mul i64 %a7, 32
  %.293 = mul i64 %.36, 4
  %.294 = icmp slt i64 %.292, %.293
  %.295 = select i1 %.294, i64 %.292, i64 %.293
  %.296 = sub i64 %.295, %.291
  %.297 = getelementptr i8, ptr %.290, i64 %.291
  %.298 = getelementptr i8, ptr %.281, i64 %.291
  call void @"llvm.memcpy.p0.p0.i64"(ptr %.298, ptr %.297, i64 %.296, i1 0)
  br i1 %.278, label %"then.7", label %"endif.9"
"endif.7":
  %.306 = add i64 %.232, 1
  %.307 = icmp slt i64 %.306, %.123
  br i1 %.307, label %"loop.5", label %"after.5", !llvm.loop !2
"then.6":
  %.282 = mul i64 %a6, 32
  %.283 = mul i64 %a7, 32
  %.284 = mul i64 %.36, 4
  %.285 = icmp slt i64 %.283, %.284
  %.286 = select i1 %.285, i64 %.283, i64 %.284
  %.287 = sub i64 %.286, %.282
  %.288 = getelementptr i8, ptr %.281, i64 %.282
  %.289 = getelementptr i8, ptr %.280, i64 %.282
  call void @"llvm.memcpy.p0.p0.i64"(ptr %.289, ptr %.288, i64 %.287, i1 0)
  br label %"endif.8"
"endif.8":
  br label %"endif.7"
"then.7":
  %.299 = mul i64 %a6, 32
  %.300 = mul i64 %a7, 32
  %.301 = mul i64 %.36, 4
  %.302 = icmp slt i64 %.300, %.301
  %.303 = select i1 %.302, i64 %.300, i64 %.301
  %.304 = sub i64 %.303, %.299
  %.305 = getelementptr i8, ptr %.280, i64 %.299
  call void @"llvm.memset.p0.i64"(ptr %.305, i8 0, i64 %.304, i1 0)
  br label %"endif.9"
"endif.9":
  br label %"endif.7"
"then.8":
  %.312 = and i64 %.34, 1
  %.313 = mul i64 %.312, %a3
  %.314 = getelementptr i8, ptr %a2, i64 %.313
  %.315 = sub i64 %a3, %.313
  %.316 = getelementptr i8, ptr %a2, i64 %.315
  %.317 = icmp ne i64 %.46, 0
  br i1 %.317, label %"then.9", label %"endif.11"
"endif.10":
  ret void
"then.9":
  %.318 = icmp slt i64 0, %.123
  br i1 %.318, label %"loop.7", label %"after.7"
"endif.11":
  br label %"endif.10"
"loop.7":
  %.319 = phi i64 [0, %"then.9"], [%.355, %"endif.13"]
  %.320 = inttoptr i64 %.46 to ptr
  %.321 = mul i64 %.319, %.52
  %.322 = getelementptr i8, ptr %.320, i64 %.127
  %.323 = getelementptr i8, ptr %.322, i64 %.321
  store i64 %.34, ptr %length.324
  %.325 = icmp ne i64 %.30, 0
  br i1 %.325, label %"then.10", label %"endif.12"
"after.7":
  br label %"endif.11"
"then.10":
  %.326 = inttoptr i64 %.30 to ptr
  %.327 = add i64 %.120, %.319
  %.328 = mul i64 %.327, 4
  %.329 = getelementptr i8, ptr %.326, i64 %.328
  %.330 = load i32, ptr %.329, align 4
  %.331 = sext i32 %.330 to i64
  %.332 = icmp slt i64 %.331, 0
  %.333 = select i1 %.332, i64 0, i64 %.331
  %.334 = icmp slt i64 %.333, %.34
  %.335 = select i1 %.334, i64 %.333, i64 %.34
  store i64 %.335, ptr %length.324
  br label %"endif.12"
"endif.12":
  %.336 = load i64, ptr %length.324
  %.337 = icmp slt i64 0, %.336
  br i1 %.337, label %"if.2", label %"else.2"
"if.2":
  %.338 = mul i64 %.319, %.40
  %.339 = getelementptr i8, ptr %.314, i64 %.338
  %.340 = mul i64 %a6, 32
  %.341 = mul i64 %a7, 32
  %.342 = mul i64 %.36, 4
  %.343 = icmp slt i64 %.341, %.342
  %.344 = select i1 %.343, i64 %.341, i64 %.342
  %.345 = sub i64 %.344, %.340
  %.346 = getelementptr i8, ptr %.339, i64 %.340
  %.347 = getelementptr i8, ptr %.323, i64 %.340
  call void @"llvm.memcpy.p0.p0.i64"(ptr %.347, ptr %.346, i64 %.345, i1 0)
  br label %"endif.13"
"else.2":
  %.348 = mul i64 %a6, 32
  %.349 = mul i64 %a7, 32
  %.350 = mul i64 %.36, 4
  %.351 = icmp slt i64 %.349, %.350
  %.352 = select i1 %.351, i64 %.349, i64 %.350
  %.353 = sub i64 %.352, %.348
  %.354 = getelementptr i8, ptr %.323, i64 %.348
  call void @"llvm.memset.p0.i64"(ptr %.354, i8 0, i64 %.353, i1 0)
  br label %"endif.13"
"endif.13":
  %.355 = add i64 %.319, 1
  %.356 = icmp slt i64 %.355, %.123
  br i1 %.356, label %"loop.7", label %"after.7", !llvm.loop !2
}
