; --- micro_steps_words_1x1_HASH, effort code
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"micro_steps_words_1x1_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = icmp slt i64 0, %a6
  br i1 %.1, label %"loop", label %"after"
"loop":
  %.2 = phi i64 [0, %"entry"], [%.140, %"after.1"]
  %.3 = phi <8 x i32> [zeroinitializer, %"entry"], [%.129, %"after.1"]
  %.4 = phi <8 x i32> [zeroinitializer, %"entry"], [%.130, %"after.1"]
  %.5 = phi <8 x i32> [zeroinitializer, %"entry"], [%.131, %"after.1"]
  %.6 = phi <8 x i32> [zeroinitializer, %"entry"], [%.132, %"after.1"]
  %.7 = phi <8 x i32> [zeroinitializer, %"entry"], [%.133, %"after.1"]
  %.8 = phi <8 x i32> [zeroinitializer, %"entry"], [%.134, %"after.1"]
  %.9 = phi <8 x i32> [zeroinitializer, %"entry"], [%.135, %"after.1"]
  %.10 = phi <8 x i32> [zeroinitializer, %"entry"], [%.136, %"after.1"]
  %.11 = phi ptr [%a9, %"entry"], [%.137, %"after.1"]
  %.12 = phi ptr [%a2, %"entry"], [%.138, %"after.1"]
  %.13 = phi i64 [0, %"entry"], [%.139, %"after.1"]
  %.14 = mul i64 %.2, 8
  %.15 = getelementptr i8, ptr %a5, i64 %.14
  %.16 = load i64, ptr %.15
  %.17 = add i64 %a3, %.13
  %.18 = add i64 %.16, %.17
  %.19 = getelementptr i8, ptr %a0, i64 %.18
  %.20 = call ptr asm "", "=r,0"(ptr %.19)
  call void @"llvm.prefetch.p0"(ptr %.20, i32 0, i32 3, i32 1)
  call void @"llvm.prefetch.p0"(ptr %.11, i32 0, i32 2, i32 1)
  %.21 = getelementptr i8, ptr %.11, i64 %a10
  %.22 = sub i64 %a1, %.13
  %.23 = icmp slt i64 0, 8
  br i1 %.23, label %"loop.1", label %"after.1"
"after":
  %.142 = phi <8 x i32> [zeroinitializer, %"entry"], [%.129, %"after.1"]
  %.143 = phi <8 x i32> [zeroinitializer, %"entry"], [%.130, %"after.1"]
  %.144 = phi <8 x i32> [zeroinitializer, %"entry"], [%.131, %"after.1"]
  %.145 = phi <8 x i32> [zeroinitializer, %"entry"], [%.132, %"after.1"]
  %.146 = phi <8 x i32> [zeroinitializer, %"entry"], [%.133, %"after.1"]
  %.147 = phi <8 x i32> [zeroinitializer, %"entry"], [%.134, %"after.1"]
  %.148 = phi <8 x i32> [zeroinitializer, %"entry"], [%.135, %"after.1"]
  %.149 = phi <8 x i32> [zeroinitializer, %"entry"], [%.136, %"after.1"]
  %.150 = phi ptr [%a9, %"entry"], [%.137, %"after.1"]
  %.151 = phi ptr [%a2, %"entry"], [%.138, %"after.1"]
  %.152 = phi i64 [0, %"entry"], [%.139, %"after.1"]
  %.153 = icmp slt i64 0, %a4
  br i1 %.153, label %"loop.2", label %"after.2"
"loop.1":
  %.24 = phi i64 [0, %"loop"], [%.127, %"loop.1"]
  %.25 = phi <8 x i32> [%.3, %"loop"], [%.48, %"loop.1"]
  %.26 = phi <8 x i32> [%.4, %"loop"], [%.59, %"loop.1"]
  %.27 = phi <8 x i32> [%.5, %"loop"], [%.70, %"loop.1"]
  %.28 = phi <8 x i32> [%.6, %"loop"], [%.81, %"loop.1"]
  %.29 = phi <8 x i32> [%.7, %"loop"], [%.92, %"loop.1"]
  %.30 = phi <8 x i32> [%.8, %"loop"], [%.103, %"loop.1"]
  %.31 = phi <8 x i32> [%.9, %"loop"], [%.114, %"loop.1"]
  %.32 = phi <8 x i32> [%.10, %"loop"], [%.125, %"loop.1"]
  %.33 = phi ptr [%.21, %"loop"], [%.33, %"loop.1"]
  %.34 = phi ptr [%.12, %"loop"], [%.126, %"loop.1"]
  %.35 = phi i64 [%.22, %"loop"], [%.35, %"loop.1"]
  %.36 = mul i64 %.24, 4
  %.37 = add i64 %.16, %.36
  %.38 = getelementptr i8, ptr %a0, i64 %.37
  %.39 = call ptr asm "", "=r,0"(ptr %.38)
  %.40 = load <8 x i32>, ptr %.34, align 4
  %.41 = load i32, ptr %.39, align 4
  %.42 = insertelement <8 x i32> poison, i32 %.41, i32 0
  %.43 = shufflevector <8 x i32> %.42, <8 x i32> poison, <8 x i32> zeroinitializer
  %.44 = bitcast <8 x i32> %.43 to <16 x i16>
  %.45 = bitcast <8 x i32> %.40 to <16 x i16>
  %.46 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.44, <16 x i16> %.45)
  %.47 = add <8 x i32> %.25, %.46
  %.48 = call <8 x i32> asm "", "=x,0"(<8 x i32> %.47)
  %.49 = getelementptr i8, ptr %.34, i64 32
  %.50 = load <8 x i32>, ptr %.49, align 4
  %.51 = getelementptr i8, ptr %.39, i64 4
  %.52 = load i32, ptr %.51, align 4
  %.53 = insertelement <8 x i32> poison, i32 %.52, i32 0
  %.54 = shufflevector <8 x i32> %.53, <8 x i32> poison, <8 x i32> zeroinitializer
  %.55 = bitcast <8 x i32> %.54 to <16 x i16>
  %.56 = bitcast <8 x i32> %.50 to <16 x i16>
  %.57 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.55, <16 x i16> %.56)
  %.58 = add <8 x i32> %.26, %.57
  %.59 = call <8 x i32> asm "", "=x,0"(<8 x i32> %.58)
  %.60 = getelementptr i8, ptr %.34, i64 64
  %.61 = load <8 x i32>, ptr %.60, align 4
  %.62 = getelementptr i8, ptr %.39, i64 8
  %.63 = load i32, ptr %.62, align 4
  %.64 = insertelement <8 x i32> poison, i32 %.63, i32 0
  %.65 = shufflevector <8 x i32> %.64, <8 x i32> poison, <8 x i32> zeroinitializer
  %.66 = bitcast <8 x i32> %.65 to <16 x i16>
  %.67 = bitcast <8 x i32> %.61 to <16 x i16>
  %.68 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.66, <16 x i16> %.67)
  %.69 = add <8 x i32> %.27, %.68
  %.70 = call <8 x i32> asm "", "=x,0"(<8 x i32> %.69)
  %.71 = getelementptr i8, ptr %.34, i64 96
  %.72 = load <8 x i32>, ptr %.71, align 4
  %.73 = getelementptr i8, ptr %.39, i64 12
  %.74 = load i32, ptr %.73, align 4
  %.75 = insertelement <8 x i32> poison, i32 %.74, i32 0
  %.76 = shufflevector <8 x i32> %.75, <8 x i32> poison, <8 x i32> zeroinitializer
  %.77 = bitcast <8 x i32> %.76 to <16 x i16>
  %.78 = bitcast <8 x i32> %.72 to <16 x i16>
  %.79 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.77, <16 x i16> %.78)
  %.80 = add <8 x i32> %.28, %.79
  %.81 = call <8 x i32> asm "", "=x,0"(<8 x i32> %.80)
  %.82 = getelementptr i8, ptr %.34, i64 128
  %.83 = load <8 x i32>, ptr %.82, align 4
  %.84 = getelementptr i8, ptr %.39, i64 16
  %.85 = load i32, ptr %.84, align 4
  %.86 = insertelement <8 x i32> poison, i32 %.85, i32 0
  %.87 = shufflevector <8 x i32> %.86, <8 x i32> poison, <8 x i32> zeroinitializer
  %.88 = bitcast <8 x i32> %.87 to <16 x i16>
  %.89 = bitcast <8 x i32> %.83 to <16 x i16>
  %.90 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.88, <16 x i16> %.89)
  %.91 = add <8 x i32> %.29, %.90
  %.92 = call <8 x i32> asm "", "=x,0"(<8 x i32> %.91)
  %.93 = getelementptr i8, ptr %.34, i64 160
  %.94 = load <8 x i32>, ptr %.93, align 4
  %.95 = getelementptr i8, ptr %.39, i64 20
  %.96 = load i32, ptr %.95, align 4
  %.97 = insertelement <8 x i32> poison, i32 %.96, i32 0
  %.98 = shufflevector <8 x i32> %.97, <8 x i32> poison, <8 x i32> zeroinitializer
  %.99 = bitcast <8 x i32> %.98 to <16 x i16>
  %.100 = bitcast <8 x i32> %.94 to <16 x i16>
  %.101 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.99, <16 x i16> %.100)
  %.102 = add <8 x i32> %.30, %.101
  %.103 = call <8 x i32> asm "", "=x,0"(<8 x i32> %.102)
  %.104 = getelementptr i8, ptr %.34, i64 192
  %.105 = load <8 x i32>, ptr %.104, align 4
  %.106 = getelementptr i8, ptr %.39, i64 24
  %.107 = load i32, ptr %.106, align 4
  %.108 = insertelement <8 x i32> poison, i32 %.107, i32 0
  %.109 = shufflevector <8 x i32> %.108, <8 x i32> poison, <8 x i32> zeroinitializer
  %.110 = bitcast <8 x i32> %.109 to <16 x i16>
  %.111 = bitcast <8 x i32> %.105 to <16 x i16>
  %.112 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.110, <16 x i16> %.111)
  %.113 = add <8 x i32> %.31, %.112
  %.114 = call <8 x i32> asm "", "=x,0"(<8 x i32> %.113)
  %.115 = getelementptr i8, ptr %.34, i64 224
  %.116 = load <8 x i32>, ptr %.115, align 4
  %.117 = getelementptr i8, ptr %.39, i64 28
  %.118 = load i32, ptr %.117, align 4
  %.119 = insertelement <8 x i32> poison, i32 %.118, i32 0
  %.120 = shufflevector <8 x i32> %.119, <8 x i32> poison, <8 x i32> zeroinitializer
  %.121 = bitcast <8 x i32> %.120 to <16 x i16>
  %.122 = bitcast <8 x i32> %.116 to <16 x i16>
  %.123 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.121, <16 x i16> %.122)
  %.124 = add <8 x i32> %.32, %.123
  %.125 = call <8 x i32> asm "", "=x,0"(<8 x i32> %.124)
  %.126 = getelementptr i8, ptr %.34, i64 256
  %.127 = add i64 %.24, 8
  %.128 = icmp slt i64 %.127, 8
  br i1 %.128, label %"loop.1", label %"after.1", !llvm.loop !2
"after.1":
  %.129 = phi <8 x i32> [%.3, %"loop"], [%.48, %"loop.1"]
  %.130 = phi <8 x i32> [%.4, %"loop"], [%.59, %"loop.1"]
  %.131 = phi <8 x i32> [%.5, %"loop"], [%.70, %"loop.1"]
  %.132 = phi <8 x i32> [%.6, %"loop"], [%.81, %"loop.1"]
  %.133 = phi <8 x i32> [%.7, %"loop"], [%.92, %"loop.1"]
  %.134 = phi <8 x i32> [%.8, %"loop"], [%.103, %"loop.1"]
  %.135 = phi <8 x i32> [%.9, %"loop"], [%.114, %"loop.1"]
  %.136 = phi <8 x i32> [%.10, %"loop"], [%.125, %"loop.1"]
  %.137 = phi ptr [%.21, %"loop"], [%.33, %"loop.1"]
  %.138 = phi ptr [%.12, %"loop"], [%.126, %"loop.1"]
  %.139 = phi i64 [%.22, %"loop"], [%.35, %"loop.1"]
  %.140 = add i64 %.2, 1
  %.141 = icmp slt i64 %.140, %a6
  br i1 %.141, label %"loop", label %"after", !llvm.loop !2
"loop.2":
  %.154 = phi i64 [0, %"after"], [%.183, %"loop.2"]
  %.155 = phi <8 x i32> [%.142, %"after"], [%.181, %"loop.2"]
  %.156 = phi <8 x i32> [%.143, %"after"], [%.156, %"loop.2"]
  %.157 = phi <8 x i32> [%.144, %"after"], [%.157, %"loop.2"]
  %.158 = phi <8 x i32> [%.145, %"after"], [%.158, %"loop.2"]
  %.159 = phi <8 x i32> [%.146, %"after"], [%.159, %"loop.2"]
  %.160 = phi <8 x i32> [%.147, %"after"], [%.160, %"loop.2"]
  %.161 = phi <8 x i32> [%.148, %"after"], [%.161, %"loop.2"]
  %.162 = phi <8 x i32> [%.149, %"after"], [%.162, %"loop.2"]
  %.163 = phi ptr [%.150, %"after"], [%.163, %"loop.2"]
  %.164 = phi ptr [%.151, %"after"], [%.182, %"loop.2"]
  %.165 = phi i64 [%.152, %"after"], [%.165, %"loop.2"]
  %.166 = mul i64 %a6, 8
  %.167 = getelementptr i8, ptr %a5, i64 %.166
  %.168 = load i64, ptr %.167
  %.169 = mul i64 %.154, 4
  %.170 = add i64 %.168, %.169
  %.171 = getelementptr i8, ptr %a0, i64 %.170
  %.172 = call ptr asm "", "=r,0"(ptr %.171)
  %.173 = load <8 x i32>, ptr %.164, align 4
  %.174 = load i32, ptr %.172, align 4
  %.175 = insertelement <8 x i32> poison, i32 %.174, i32 0
  %.176 = shufflevector <8 x i32> %.175, <8 x i32> poison, <8 x i32> zeroinitializer
  %.177 = bitcast <8 x i32> %.176 to <16 x i16>
  %.178 = bitcast <8 x i32> %.173 to <16 x i16>
  %.179 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.177, <16 x i16> %.178)
  %.180 = add <8 x i32> %.155, %.179
  %.181 = call <8 x i32> asm "", "=x,0"(<8 x i32> %.180)
  %.182 = getelementptr i8, ptr %.164, i64 32
  %.183 = add i64 %.154, 1
  %.184 = icmp slt i64 %.183, %a4
  br i1 %.184, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.185 = phi <8 x i32> [%.142, %"after"], [%.181, %"loop.2"]
  %.186 = phi <8 x i32> [%.143, %"after"], [%.156, %"loop.2"]
  %.187 = phi <8 x i32> [%.144, %"after"], [%.157, %"loop.2"]
  %.188 = phi <8 x i32> [%.145, %"after"], [%.158, %"loop.2"]
  %.189 = phi <8 x i32> [%.146, %"after"], [%.159, %"loop.2"]
  %.190 = phi <8 x i32> [%.147, %"after"], [%.160, %"loop.2"]
  %.191 = phi <8 x i32> [%.148, %"after"], [%.161, %"loop.2"]
  %.192 = phi <8 x i32> [%.149, %"after"], [%.162, %"loop.2"]
  %.193 = phi ptr [%.150, %"after"], [%.163, %"loop.2"]
  %.194 = phi ptr [%.151, %"after"], [%.182, %"loop.2"]
  %.195 = phi i64 [%.152, %"after"], [%.165, %"loop.2"]
  %.196 = add <8 x i32> %.185, %.186
  %.197 = add <8 x i32> %.187, %.188
  %.198 = add <8 x i32> %.189, %.190
  %.199 = add <8 x i32> %.191, %.192
  %.200 = add <8 x i32> %.196, %.197
  %.201 = add <8 x i32> %.198, %.199
  %.202 = add <8 x i32> %.200, %.201
  %.203 = icmp slt i64 0, %a8
  br i1 %.203, label %"taken", label %"after.3"
"taken":
  %.204 = load <8 x i32>, ptr %a7
  %.205 = add <8 x i32> %.204, %.202
  br label %"after.3"
"after.3":
  %.206 = phi <8 x i32> [%.202, %"after.2"], [%.205, %"taken"]
  store <8 x i32> %.206, ptr %a7
  ret void
}
declare void @"llvm.prefetch.p0"(ptr, i32, i32, i32)
declare <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16>, <16 x i16>)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}

; --- micro_steps_words_HASH, effort code
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
declare void @"micro_steps_words_1x1_HASH"(ptr, i64, ptr, i64, i64, ptr, i64, ptr, i64, ptr, i64)
define void @"micro_steps_words_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10, i64 %a11, i64 %a12) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = sub i64 %a12, 1
  %.2 = add i64 %.1, %a11
  switch i64 %.2, label %"others" [i64 1, label %"case_1"]
"others":
  ret void
"case_1":
  tail call void @"micro_steps_words_1x1_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10)
  ret void
}
