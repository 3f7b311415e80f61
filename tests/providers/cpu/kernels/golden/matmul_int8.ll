; --- micro_uint8_1x1_HASH, effort code
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"micro_uint8_1x1_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = icmp slt i64 0, %a6
  br i1 %.1, label %"loop", label %"after"
"loop":
  %.2 = phi i64 [0, %"entry"], [%.200, %"after.3"]
  %.3 = phi <8 x i32> [zeroinitializer, %"entry"], [%.193, %"after.3"]
  %.4 = phi <8 x i32> [zeroinitializer, %"entry"], [%.194, %"after.3"]
  %.5 = phi <8 x i32> [zeroinitializer, %"entry"], [%.195, %"after.3"]
  %.6 = phi <8 x i32> [zeroinitializer, %"entry"], [%.196, %"after.3"]
  %.7 = phi ptr [%a9, %"entry"], [%.197, %"after.3"]
  %.8 = phi ptr [%a2, %"entry"], [%.198, %"after.3"]
  %.9 = mul i64 %.2, 8
  %.10 = getelementptr i8, ptr %a5, i64 %.9
  %.11 = load i64, ptr %.10
  %.12 = getelementptr i8, ptr %a0, i64 %.11
  %.13 = mul i64 %a6, 8
  %.14 = getelementptr i8, ptr %a5, i64 %.13
  %.15 = load i64, ptr %.14
  %.16 = icmp slt i64 %.15, 4
  %.17 = zext i1 %.16 to i64
  %.18 = sub i64 %a4, %.17
  %.19 = and i64 %.18, -4
  %.20 = icmp slt i64 0, %.19
  br i1 %.20, label %"loop.1", label %"after.1"
"after":
  %.202 = phi <8 x i32> [zeroinitializer, %"entry"], [%.193, %"after.3"]
  %.203 = phi <8 x i32> [zeroinitializer, %"entry"], [%.194, %"after.3"]
  %.204 = phi <8 x i32> [zeroinitializer, %"entry"], [%.195, %"after.3"]
  %.205 = phi <8 x i32> [zeroinitializer, %"entry"], [%.196, %"after.3"]
  %.206 = phi ptr [%a9, %"entry"], [%.197, %"after.3"]
  %.207 = phi ptr [%a2, %"entry"], [%.198, %"after.3"]
  %.208 = add <8 x i32> %.202, %.203
  %.209 = add <8 x i32> %.204, %.205
  %.210 = add <8 x i32> %.208, %.209
  %.211 = icmp slt i64 0, %a8
  br i1 %.211, label %"taken", label %"after.4"
"loop.1":
  %.21 = phi i64 [0, %"loop"], [%.101, %"loop.1"]
  %.22 = phi <8 x i32> [%.3, %"loop"], [%.43, %"loop.1"]
  %.23 = phi <8 x i32> [%.4, %"loop"], [%.61, %"loop.1"]
  %.24 = phi <8 x i32> [%.5, %"loop"], [%.79, %"loop.1"]
  %.25 = phi <8 x i32> [%.6, %"loop"], [%.97, %"loop.1"]
  %.26 = phi ptr [%.7, %"loop"], [%.99, %"loop.1"]
  %.27 = phi ptr [%.8, %"loop"], [%.98, %"loop.1"]
  %.28 = phi ptr [%.12, %"loop"], [%.100, %"loop.1"]
  %.29 = load <8 x i32>, ptr %.27, align 4
  %.30 = bitcast <8 x i32> %.29 to <16 x i16>
  %.31 = shl <16 x i16> %.30, splat (i16 8)
  %.32 = ashr <16 x i16> %.31, splat (i16 8)
  %.33 = ashr <16 x i16> %.30, splat (i16 8)
  %.34 = load i32, ptr %.28, align 1
  %.35 = insertelement <8 x i32> poison, i32 %.34, i32 0
  %.36 = shufflevector <8 x i32> %.35, <8 x i32> poison, <8 x i32> zeroinitializer
  %.37 = bitcast <8 x i32> %.36 to <16 x i16>
  %.38 = and <16 x i16> %.37, splat (i16 255)
  %.39 = lshr <16 x i16> %.37, splat (i16 8)
  %.40 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.38, <16 x i16> %.32)
  %.41 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.39, <16 x i16> %.33)
  %.42 = add <8 x i32> %.40, %.41
  %.43 = add <8 x i32> %.22, %.42
  call void @"llvm.prefetch.p0"(ptr %.26, i32 0, i32 2, i32 1)
  %.44 = getelementptr i8, ptr %.27, i64 %a3
  %.45 = getelementptr i8, ptr %.26, i64 %a10
  %.46 = load <8 x i32>, ptr %.44, align 4
  %.47 = bitcast <8 x i32> %.46 to <16 x i16>
  %.48 = shl <16 x i16> %.47, splat (i16 8)
  %.49 = ashr <16 x i16> %.48, splat (i16 8)
  %.50 = ashr <16 x i16> %.47, splat (i16 8)
  %.51 = getelementptr i8, ptr %.28, i64 4
  %.52 = load i32, ptr %.51, align 1
  %.53 = insertelement <8 x i32> poison, i32 %.52, i32 0
  %.54 = shufflevector <8 x i32> %.53, <8 x i32> poison, <8 x i32> zeroinitializer
  %.55 = bitcast <8 x i32> %.54 to <16 x i16>
  %.56 = and <16 x i16> %.55, splat (i16 255)
  %.57 = lshr <16 x i16> %.55, splat (i16 8)
  %.58 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.56, <16 x i16> %.49)
  %.59 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.57, <16 x i16> %.50)
  %.60 = add <8 x i32> %.58, %.59
  %.61 = add <8 x i32> %.23, %.60
  call void @"llvm.prefetch.p0"(ptr %.45, i32 0, i32 2, i32 1)
  %.62 = getelementptr i8, ptr %.44, i64 %a3
  %.63 = getelementptr i8, ptr %.45, i64 %a10
  %.64 = load <8 x i32>, ptr %.62, align 4
  %.65 = bitcast <8 x i32> %.64 to <16 x i16>
  %.66 = shl <16 x i16> %.65, splat (i16 8)
  %.67 = ashr <16 x i16> %.66, splat (i16 8)
  %.68 = ashr <16 x i16> %.65, splat (i16 8)
  %.69 = getelementptr i8, ptr %.28, i64 8
  %.70 = load i32, ptr %.69, align 1
  %.71 = insertelement <8 x i32> poison, i32 %.70, i32 0
  %.72 = shufflevector <8 x i32> %.71, <8 x i32> poison, <8 x i32> zeroinitializer
  %.73 = bitcast <8 x i32> %.72 to <16 x i16>
  %.74 = and <16 x i16> %.73, splat (i16 255)
  %.75 = lshr <16 x i16> %.73, splat (i16 8)
  %.76 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.74, <16 x i16> %.67)
  %.77 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.75, <16 x i16> %.68)
  %.78 = add <8 x i32> %.76, %.77
  %.79 = add <8 x i32> %.24, %.78
  call void @"llvm.prefetch.p0"(ptr %.63, i32 0, i32 2, i32 1)
  %.80 = getelementptr i8, ptr %.62, i64 %a3
  %.81 = getelementptr i8, ptr %.63, i64 %a10
  %.82 = load <8 x i32>, ptr %.80, align 4
  %.83 = bitcast <8 x i32> %.82 to <16 x i16>
  %.84 = shl <16 x i16> %.83, splat (i16 8)
  %.85 = ashr <16 x i16> %.84, splat (i16 8)
  %.86 = ashr <16 x i16> %.83, splat (i16 8)
  %.87 = getelementptr i8, ptr %.28, i64 12
  %.88 = load i32, ptr %.87, align 1
  %.89 = insertelement <8 x i32> poison, i32 %.88, i32 0
  %.90 = shufflevector <8 x i32> %.89, <8 x i32> poison, <8 x i32> zeroinitializer
  %.91 = bitcast <8 x i32> %.90 to <16 x i16>
  %.92 = and <16 x i16> %.91, splat (i16 255)
  %.93 = lshr <16 x i16> %.91, splat (i16 8)
  %.94 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.92, <16 x i16> %.85)
  %.95 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.93, <16 x i16> %.86)
  %.96 = add <8 x i32> %.94, %.95
  %.97 = add <8 x i32> %.25, %.96
  call void @"llvm.prefetch.p0"(ptr %.81, i32 0, i32 2, i32 1)
  %.98 = getelementptr i8, ptr %.80, i64 %a3
  %.99 = getelementptr i8, ptr %.81, i64 %a10
  %.100 = getelementptr i8, ptr %.28, i64 16
  %.101 = add i64 %.21, 4
  %.102 = icmp slt i64 %.101, %.19
  br i1 %.102, label %"loop.1", label %"after.1", !llvm.loop !2
"after.1":
  %.103 = phi <8 x i32> [%.3, %"loop"], [%.43, %"loop.1"]
  %.104 = phi <8 x i32> [%.4, %"loop"], [%.61, %"loop.1"]
  %.105 = phi <8 x i32> [%.5, %"loop"], [%.79, %"loop.1"]
  %.106 = phi <8 x i32> [%.6, %"loop"], [%.97, %"loop.1"]
  %.107 = phi ptr [%.7, %"loop"], [%.99, %"loop.1"]
  %.108 = phi ptr [%.8, %"loop"], [%.98, %"loop.1"]
  %.109 = phi ptr [%.12, %"loop"], [%.100, %"loop.1"]
  %.110 = icmp slt i64 %.19, %.18
  br i1 %.110, label %"loop.2", label %"after.2"
"loop.2":
  %.111 = phi i64 [%.19, %"after.1"], [%.137, %"loop.2"]
  %.112 = phi <8 x i32> [%.103, %"after.1"], [%.133, %"loop.2"]
  %.113 = phi <8 x i32> [%.104, %"after.1"], [%.113, %"loop.2"]
  %.114 = phi <8 x i32> [%.105, %"after.1"], [%.114, %"loop.2"]
  %.115 = phi <8 x i32> [%.106, %"after.1"], [%.115, %"loop.2"]
  %.116 = phi ptr [%.107, %"after.1"], [%.135, %"loop.2"]
  %.117 = phi ptr [%.108, %"after.1"], [%.134, %"loop.2"]
  %.118 = phi ptr [%.109, %"after.1"], [%.136, %"loop.2"]
  %.119 = load <8 x i32>, ptr %.117, align 4
  %.120 = bitcast <8 x i32> %.119 to <16 x i16>
  %.121 = shl <16 x i16> %.120, splat (i16 8)
  %.122 = ashr <16 x i16> %.121, splat (i16 8)
  %.123 = ashr <16 x i16> %.120, splat (i16 8)
  %.124 = load i32, ptr %.118, align 1
  %.125 = insertelement <8 x i32> poison, i32 %.124, i32 0
  %.126 = shufflevector <8 x i32> %.125, <8 x i32> poison, <8 x i32> zeroinitializer
  %.127 = bitcast <8 x i32> %.126 to <16 x i16>
  %.128 = and <16 x i16> %.127, splat (i16 255)
  %.129 = lshr <16 x i16> %.127, splat (i16 8)
  %.130 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.128, <16 x i16> %.122)
  %.131 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.129, <16 x i16> %.123)
  %.132 = add <8 x i32> %.130, %.131
  %.133 = add <8 x i32> %.112, %.132
  call void @"llvm.prefetch.p0"(ptr %.116, i32 0, i32 2, i32 1)
  %.134 = getelementptr i8, ptr %.117, i64 %a3
  %.135 = getelementptr i8, ptr %.116, i64 %a10
  %.136 = getelementptr i8, ptr %.118, i64 4
  %.137 = add i64 %.111, 1
  %.138 = icmp slt i64 %.137, %.18
  br i1 %.138, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.139 = phi <8 x i32> [%.103, %"after.1"], [%.133, %"loop.2"]
  %.140 = phi <8 x i32> [%.104, %"after.1"], [%.113, %"loop.2"]
  %.141 = phi <8 x i32> [%.105, %"after.1"], [%.114, %"loop.2"]
  %.142 = phi <8 x i32> [%.106, %"after.1"], [%.115, %"loop.2"]
  %.143 = phi ptr [%.107, %"after.1"], [%.135, %"loop.2"]
  %.144 = phi ptr [%.108, %"after.1"], [%.134, %"loop.2"]
  %.145 = phi ptr [%.109, %"after.1"], [%.136, %"loop.2"]
  %.146 = icmp slt i64 %.18, %a4
  br i1 %.146, label %"loop.3", label %"after.3"
"loop.3":
  %.147 = phi i64 [%.18, %"after.2"], [%.191, %"loop.3"]
  %.148 = phi <8 x i32> [%.139, %"after.2"], [%.187, %"loop.3"]
  %.149 = phi <8 x i32> [%.140, %"after.2"], [%.149, %"loop.3"]
  %.150 = phi <8 x i32> [%.141, %"after.2"], [%.150, %"loop.3"]
  %.151 = phi <8 x i32> [%.142, %"after.2"], [%.151, %"loop.3"]
  %.152 = phi ptr [%.143, %"after.2"], [%.189, %"loop.3"]
  %.153 = phi ptr [%.144, %"after.2"], [%.188, %"loop.3"]
  %.154 = phi ptr [%.145, %"after.2"], [%.190, %"loop.3"]
  %.155 = load <8 x i32>, ptr %.153, align 4
  %.156 = bitcast <8 x i32> %.155 to <16 x i16>
  %.157 = shl <16 x i16> %.156, splat (i16 8)
  %.158 = ashr <16 x i16> %.157, splat (i16 8)
  %.159 = ashr <16 x i16> %.156, splat (i16 8)
  %.160 = load i8, ptr %.154
  %.161 = zext i8 %.160 to i32
  %.162 = shl i32 %.161, 0
  %.163 = sub i64 %.15, 1
  %.164 = icmp slt i64 1, %.163
  %.165 = select i1 %.164, i64 1, i64 %.163
  %.166 = getelementptr i8, ptr %.154, i64 %.165
  %.167 = load i8, ptr %.166
  %.168 = zext i8 %.167 to i32
  %.169 = shl i32 %.168, 8
  %.170 = or i32 %.162, %.169
  %.171 = sub i64 %.15, 1
  %.172 = icmp slt i64 2, %.171
  %.173 = select i1 %.172, i64 2, i64 %.171
  %.174 = getelementptr i8, ptr %.154, i64 %.173
  %.175 = load i8, ptr %.174
  %.176 = zext i8 %.175 to i32
  %.177 = shl i32 %.176, 16
  %.178 = or i32 %.170, %.177
  %.179 = insertelement <8 x i32> poison, i32 %.178, i32 0
  %.180 = shufflevector <8 x i32> %.179, <8 x i32> poison, <8 x i32> zeroinitializer
  %.181 = bitcast <8 x i32> %.180 to <16 x i16>
  %.182 = and <16 x i16> %.181, splat (i16 255)
  %.183 = lshr <16 x i16> %.181, splat (i16 8)
  %.184 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.182, <16 x i16> %.158)
  %.185 = call <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16> %.183, <16 x i16> %.159)
  %.186 = add <8 x i32> %.184, %.185
  %.187 = add <8 x i32> %.148, %.186
  call void @"llvm.prefetch.p0"(ptr %.152, i32 0, i32 2, i32 1)
  %.188 = getelementptr i8, ptr %.153, i64 %a3
  %.189 = getelementptr i8, ptr %.152, i64 %a10
  %.190 = getelementptr i8, ptr %.154, i64 4
  %.191 = add i64 %.147, 1
  %.192 = icmp slt i64 %.191, %a4
  br i1 %.192, label %"loop.3", label %"after.3", !llvm.loop !2
"after.3":
  %.193 = phi <8 x i32> [%.139, %"after.2"], [%.187, %"loop.3"]
  %.194 = phi <8 x i32> [%.140, %"after.2"], [%.149, %"loop.3"]
  %.195 = phi <8 x i32> [%.141, %"after.2"], [%.150, %"loop.3"]
  %.196 = phi <8 x i32> [%.142, %"after.2"], [%.151, %"loop.3"]
  %.197 = phi ptr [%.143, %"after.2"], [%.189, %"loop.3"]
  %.198 = phi ptr [%.144, %"after.2"], [%.188, %"loop.3"]
  %.199 = phi ptr [%.145, %"after.2"], [%.190, %"loop.3"]
  %.200 = add i64 %.2, 1
  %.201 = icmp slt i64 %.200, %a6
  br i1 %.201, label %"loop", label %"after", !llvm.loop !2
"taken":
  %.212 = load <8 x i32>, ptr %a7
  %.213 = add <8 x i32> %.212, %.210
  br label %"after.4"
"after.4":
  %.214 = phi <8 x i32> [%.210, %"after"], [%.213, %"taken"]
  store <8 x i32> %.214, ptr %a7
  ret void
}
declare <8 x i32> @"llvm.x86.avx2.pmadd.wd"(<16 x i16>, <16 x i16>)
declare void @"llvm.prefetch.p0"(ptr, i32, i32, i32)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}

; --- micro_uint8_HASH, effort code
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
declare void @"micro_uint8_1x1_HASH"(ptr, i64, ptr, i64, i64, ptr, i64, ptr, i64, ptr, i64)
define void @"micro_uint8_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10, i64 %a11, i64 %a12) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = sub i64 %a12, 1
  %.2 = add i64 %.1, %a11
  switch i64 %.2, label %"others" [i64 1, label %"case_1"]
"others":
  ret void
"case_1":
  tail call void @"micro_uint8_1x1_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10)
  ret void
}
