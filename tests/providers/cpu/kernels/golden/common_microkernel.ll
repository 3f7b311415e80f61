; --- micro_float_1x1_HASH, effort code
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"micro_float_1x1_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = icmp slt i64 0, %a6
  br i1 %.1, label %"loop", label %"after"
"loop":
  %.2 = phi i64 [0, %"entry"], [%.90, %"after.2"]
  %.3 = phi <8 x float> [zeroinitializer, %"entry"], [%.83, %"after.2"]
  %.4 = phi <8 x float> [zeroinitializer, %"entry"], [%.84, %"after.2"]
  %.5 = phi <8 x float> [zeroinitializer, %"entry"], [%.85, %"after.2"]
  %.6 = phi <8 x float> [zeroinitializer, %"entry"], [%.86, %"after.2"]
  %.7 = phi ptr [%a9, %"entry"], [%.87, %"after.2"]
  %.8 = phi ptr [%a2, %"entry"], [%.88, %"after.2"]
  %.9 = mul i64 %.2, 8
  %.10 = getelementptr i8, ptr %a5, i64 %.9
  %.11 = load i64, ptr %.10
  %.12 = getelementptr i8, ptr %a0, i64 %.11
  %.13 = and i64 %a4, -4
  %.14 = icmp slt i64 0, %.13
  br i1 %.14, label %"loop.1", label %"after.1"
"after":
  %.92 = phi <8 x float> [zeroinitializer, %"entry"], [%.83, %"after.2"]
  %.93 = phi <8 x float> [zeroinitializer, %"entry"], [%.84, %"after.2"]
  %.94 = phi <8 x float> [zeroinitializer, %"entry"], [%.85, %"after.2"]
  %.95 = phi <8 x float> [zeroinitializer, %"entry"], [%.86, %"after.2"]
  %.96 = phi ptr [%a9, %"entry"], [%.87, %"after.2"]
  %.97 = phi ptr [%a2, %"entry"], [%.88, %"after.2"]
  %.98 = fadd <8 x float> %.92, %.93
  %.99 = fadd <8 x float> %.94, %.95
  %.100 = fadd <8 x float> %.98, %.99
  %.101 = icmp slt i64 0, %a8
  br i1 %.101, label %"taken", label %"after.3"
"loop.1":
  %.15 = phi i64 [0, %"loop"], [%.55, %"loop.1"]
  %.16 = phi <8 x float> [%.3, %"loop"], [%.27, %"loop.1"]
  %.17 = phi <8 x float> [%.4, %"loop"], [%.35, %"loop.1"]
  %.18 = phi <8 x float> [%.5, %"loop"], [%.43, %"loop.1"]
  %.19 = phi <8 x float> [%.6, %"loop"], [%.51, %"loop.1"]
  %.20 = phi ptr [%.7, %"loop"], [%.53, %"loop.1"]
  %.21 = phi ptr [%.8, %"loop"], [%.52, %"loop.1"]
  %.22 = phi ptr [%.12, %"loop"], [%.54, %"loop.1"]
  %.23 = load <8 x float>, ptr %.21, align 4
  %.24 = load float, ptr %.22, align 4
  %.25 = insertelement <8 x float> poison, float %.24, i32 0
  %.26 = shufflevector <8 x float> %.25, <8 x float> poison, <8 x i32> zeroinitializer
  %.27 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.26, <8 x float> %.23, <8 x float> %.16)
  call void @"llvm.prefetch.p0"(ptr %.20, i32 0, i32 2, i32 1)
  %.28 = getelementptr i8, ptr %.21, i64 %a3
  %.29 = getelementptr i8, ptr %.20, i64 %a10
  %.30 = load <8 x float>, ptr %.28, align 4
  %.31 = getelementptr i8, ptr %.22, i64 4
  %.32 = load float, ptr %.31, align 4
  %.33 = insertelement <8 x float> poison, float %.32, i32 0
  %.34 = shufflevector <8 x float> %.33, <8 x float> poison, <8 x i32> zeroinitializer
  %.35 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.34, <8 x float> %.30, <8 x float> %.17)
  call void @"llvm.prefetch.p0"(ptr %.29, i32 0, i32 2, i32 1)
  %.36 = getelementptr i8, ptr %.28, i64 %a3
  %.37 = getelementptr i8, ptr %.29, i64 %a10
  %.38 = load <8 x float>, ptr %.36, align 4
  %.39 = getelementptr i8, ptr %.22, i64 8
  %.40 = load float, ptr %.39, align 4
  %.41 = insertelement <8 x float> poison, float %.40, i32 0
  %.42 = shufflevector <8 x float> %.41, <8 x float> poison, <8 x i32> zeroinitializer
  %.43 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.42, <8 x float> %.38, <8 x float> %.18)
  call void @"llvm.prefetch.p0"(ptr %.37, i32 0, i32 2, i32 1)
  %.44 = getelementptr i8, ptr %.36, i64 %a3
  %.45 = getelementptr i8, ptr %.37, i64 %a10
  %.46 = load <8 x float>, ptr %.44, align 4
  %.47 = getelementptr i8, ptr %.22, i64 12
  %.48 = load float, ptr %.47, align 4
  %.49 = insertelement <8 x float> poison, float %.48, i32 0
  %.50 = shufflevector <8 x float> %.49, <8 x float> poison, <8 x i32> zeroinitializer
  %.51 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.50, <8 x float> %.46, <8 x float> %.19)
  call void @"llvm.prefetch.p0"(ptr %.45, i32 0, i32 2, i32 1)
  %.52 = getelementptr i8, ptr %.44, i64 %a3
  %.53 = getelementptr i8, ptr %.45, i64 %a10
  %.54 = getelementptr i8, ptr %.22, i64 16
  %.55 = add i64 %.15, 4
  %.56 = icmp slt i64 %.55, %.13
  br i1 %.56, label %"loop.1", label %"after.1", !llvm.loop !2
"after.1":
  %.57 = phi <8 x float> [%.3, %"loop"], [%.27, %"loop.1"]
  %.58 = phi <8 x float> [%.4, %"loop"], [%.35, %"loop.1"]
  %.59 = phi <8 x float> [%.5, %"loop"], [%.43, %"loop.1"]
  %.60 = phi <8 x float> [%.6, %"loop"], [%.51, %"loop.1"]
  %.61 = phi ptr [%.7, %"loop"], [%.53, %"loop.1"]
  %.62 = phi ptr [%.8, %"loop"], [%.52, %"loop.1"]
  %.63 = phi ptr [%.12, %"loop"], [%.54, %"loop.1"]
  %.64 = icmp slt i64 %.13, %a4
  br i1 %.64, label %"loop.2", label %"after.2"
"loop.2":
  %.65 = phi i64 [%.13, %"after.1"], [%.81, %"loop.2"]
  %.66 = phi <8 x float> [%.57, %"after.1"], [%.77, %"loop.2"]
  %.67 = phi <8 x float> [%.58, %"after.1"], [%.67, %"loop.2"]
  %.68 = phi <8 x float> [%.59, %"after.1"], [%.68, %"loop.2"]
  %.69 = phi <8 x float> [%.60, %"after.1"], [%.69, %"loop.2"]
  %.70 = phi ptr [%.61, %"after.1"], [%.79, %"loop.2"]
  %.71 = phi ptr [%.62, %"after.1"], [%.78, %"loop.2"]
  %.72 = phi ptr [%.63, %"after.1"], [%.80, %"loop.2"]
  %.73 = load <8 x float>, ptr %.71, align 4
  %.74 = load float, ptr %.72, align 4
  %.75 = insertelement <8 x float> poison, float %.74, i32 0
  %.76 = shufflevector <8 x float> %.75, <8 x float> poison, <8 x i32> zeroinitializer
  %.77 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.76, <8 x float> %.73, <8 x float> %.66)
  call void @"llvm.prefetch.p0"(ptr %.70, i32 0, i32 2, i32 1)
  %.78 = getelementptr i8, ptr %.71, i64 %a3
  %.79 = getelementptr i8, ptr %.70, i64 %a10
  %.80 = getelementptr i8, ptr %.72, i64 4
  %.81 = add i64 %.65, 1
  %.82 = icmp slt i64 %.81, %a4
  br i1 %.82, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.83 = phi <8 x float> [%.57, %"after.1"], [%.77, %"loop.2"]
  %.84 = phi <8 x float> [%.58, %"after.1"], [%.67, %"loop.2"]
  %.85 = phi <8 x float> [%.59, %"after.1"], [%.68, %"loop.2"]
  %.86 = phi <8 x float> [%.60, %"after.1"], [%.69, %"loop.2"]
  %.87 = phi ptr [%.61, %"after.1"], [%.79, %"loop.2"]
  %.88 = phi ptr [%.62, %"after.1"], [%.78, %"loop.2"]
  %.89 = phi ptr [%.63, %"after.1"], [%.80, %"loop.2"]
  %.90 = add i64 %.2, 1
  %.91 = icmp slt i64 %.90, %a6
  br i1 %.91, label %"loop", label %"after", !llvm.loop !2
"taken":
  %.102 = load <8 x float>, ptr %a7
  %.103 = fadd <8 x float> %.102, %.100
  br label %"after.3"
"after.3":
  %.104 = phi <8 x float> [%.100, %"after"], [%.103, %"taken"]
  store <8 x float> %.104, ptr %a7
  ret void
}
declare <8 x float> @"llvm.fmuladd.v8f32"(<8 x float>, <8 x float>, <8 x float>)
declare void @"llvm.prefetch.p0"(ptr, i32, i32, i32)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}

; --- micro_float_HASH, effort code
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
declare void @"micro_float_1x1_HASH"(ptr, i64, ptr, i64, i64, ptr, i64, ptr, i64, ptr, i64)
define void @"micro_float_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10, i64 %a11, i64 %a12) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = sub i64 %a12, 1
  %.2 = add i64 %.1, %a11
  switch i64 %.2, label %"others" [i64 1, label %"case_1"]
"others":
  ret void
"case_1":
  tail call void @"micro_float_1x1_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10)
  ret void
}
