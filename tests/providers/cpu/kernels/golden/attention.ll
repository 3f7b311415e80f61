; --- micro_lanes_HASH, effort code
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define internal void @"tile_2"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10) noinline nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = icmp slt i64 0, %a4
  br i1 %.1, label %"if", label %"else"
"if":
  %.2 = icmp slt i64 %a4, 2
  %.3 = select i1 %.2, i64 %a4, i64 2
  %.4 = load i64, ptr %a5
  %.5 = getelementptr i8, ptr %a0, i64 %.4
  %.6 = sub i64 %a4, %.3
  %.7 = and i64 %.6, -2
  %.8 = icmp slt i64 0, %.7
  br i1 %.8, label %"loop", label %"after"
"else":
  %.93 = icmp eq i64 %a8, 0
  %.94 = select i1 %.93, i64 1, i64 0
  %.95 = icmp slt i64 0, %.94
  br i1 %.95, label %"loop.4", label %"after.4"
"endif":
  ret void
"loop":
  %.9 = phi i64 [0, %"if"], [%.31, %"loop"]
  %.10 = phi <8 x float> [zeroinitializer, %"if"], [%.27, %"loop"]
  %.11 = phi ptr [%a9, %"if"], [%.29, %"loop"]
  %.12 = phi ptr [%a2, %"if"], [%.28, %"loop"]
  %.13 = phi ptr [%.5, %"if"], [%.30, %"loop"]
  %.14 = load <8 x float>, ptr %.12, align 4
  %.15 = load float, ptr %.13, align 4
  %.16 = insertelement <8 x float> poison, float %.15, i32 0
  %.17 = shufflevector <8 x float> %.16, <8 x float> poison, <8 x i32> zeroinitializer
  %.18 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.17, <8 x float> %.14, <8 x float> %.10)
  call void @"llvm.prefetch.p0"(ptr %.11, i32 0, i32 2, i32 1)
  %.19 = getelementptr i8, ptr %.13, i64 2048
  call void @"llvm.prefetch.p0"(ptr %.19, i32 0, i32 3, i32 1)
  %.20 = getelementptr i8, ptr %.12, i64 %a3
  %.21 = getelementptr i8, ptr %.11, i64 %a10
  %.22 = load <8 x float>, ptr %.20, align 4
  %.23 = getelementptr i8, ptr %.13, i64 4
  %.24 = load float, ptr %.23, align 4
  %.25 = insertelement <8 x float> poison, float %.24, i32 0
  %.26 = shufflevector <8 x float> %.25, <8 x float> poison, <8 x i32> zeroinitializer
  %.27 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.26, <8 x float> %.22, <8 x float> %.18)
  call void @"llvm.prefetch.p0"(ptr %.21, i32 0, i32 2, i32 1)
  %.28 = getelementptr i8, ptr %.20, i64 %a3
  %.29 = getelementptr i8, ptr %.21, i64 %a10
  %.30 = getelementptr i8, ptr %.13, i64 8
  %.31 = add i64 %.9, 2
  %.32 = icmp slt i64 %.31, %.7
  br i1 %.32, label %"loop", label %"after", !llvm.loop !2
"after":
  %.33 = phi <8 x float> [zeroinitializer, %"if"], [%.27, %"loop"]
  %.34 = phi ptr [%a9, %"if"], [%.29, %"loop"]
  %.35 = phi ptr [%a2, %"if"], [%.28, %"loop"]
  %.36 = phi ptr [%.5, %"if"], [%.30, %"loop"]
  %.37 = icmp slt i64 %.7, %.6
  br i1 %.37, label %"loop.1", label %"after.1"
"loop.1":
  %.38 = phi i64 [%.7, %"after"], [%.52, %"loop.1"]
  %.39 = phi <8 x float> [%.33, %"after"], [%.47, %"loop.1"]
  %.40 = phi ptr [%.34, %"after"], [%.50, %"loop.1"]
  %.41 = phi ptr [%.35, %"after"], [%.49, %"loop.1"]
  %.42 = phi ptr [%.36, %"after"], [%.51, %"loop.1"]
  %.43 = load <8 x float>, ptr %.41, align 4
  %.44 = load float, ptr %.42, align 4
  %.45 = insertelement <8 x float> poison, float %.44, i32 0
  %.46 = shufflevector <8 x float> %.45, <8 x float> poison, <8 x i32> zeroinitializer
  %.47 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.46, <8 x float> %.43, <8 x float> %.39)
  call void @"llvm.prefetch.p0"(ptr %.40, i32 0, i32 2, i32 1)
  %.48 = getelementptr i8, ptr %.42, i64 2048
  call void @"llvm.prefetch.p0"(ptr %.48, i32 0, i32 3, i32 1)
  %.49 = getelementptr i8, ptr %.41, i64 %a3
  %.50 = getelementptr i8, ptr %.40, i64 %a10
  %.51 = getelementptr i8, ptr %.42, i64 4
  %.52 = add i64 %.38, 1
  %.53 = icmp slt i64 %.52, %.6
  br i1 %.53, label %"loop.1", label %"after.1", !llvm.loop !2
"after.1":
  %.54 = phi <8 x float> [%.33, %"after"], [%.47, %"loop.1"]
  %.55 = phi ptr [%.34, %"after"], [%.50, %"loop.1"]
  %.56 = phi ptr [%.35, %"after"], [%.49, %"loop.1"]
  %.57 = phi ptr [%.36, %"after"], [%.51, %"loop.1"]
  %.58 = mul i64 %a10, 0
  %.59 = getelementptr i8, ptr %.55, i64 %.58
  call void @"llvm.prefetch.p0"(ptr %.59, i32 0, i32 2, i32 1)
  %.60 = getelementptr i8, ptr %.55, i64 %a10
  call void @"llvm.prefetch.p0"(ptr %.60, i32 0, i32 2, i32 1)
  %.61 = load float, ptr %.57, align 4
  %.62 = insertelement <8 x float> poison, float %.61, i32 0
  %.63 = shufflevector <8 x float> %.62, <8 x float> poison, <8 x i32> zeroinitializer
  %.64 = load <8 x float>, ptr %.56, align 4
  %.65 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.63, <8 x float> %.64, <8 x float> %.54)
  %.66 = getelementptr i8, ptr %.56, i64 %a3
  %.67 = getelementptr i8, ptr %.57, i64 4
  %.68 = icmp slt i64 1, %.3
  br i1 %.68, label %"loop.2", label %"after.2"
"loop.2":
  %.69 = phi i64 [1, %"after.1"], [%.80, %"loop.2"]
  %.70 = phi <8 x float> [%.65, %"after.1"], [%.77, %"loop.2"]
  %.71 = phi ptr [%.66, %"after.1"], [%.78, %"loop.2"]
  %.72 = phi ptr [%.67, %"after.1"], [%.79, %"loop.2"]
  %.73 = load float, ptr %.72, align 4
  %.74 = insertelement <8 x float> poison, float %.73, i32 0
  %.75 = shufflevector <8 x float> %.74, <8 x float> poison, <8 x i32> zeroinitializer
  %.76 = load <8 x float>, ptr %.71, align 4
  %.77 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.75, <8 x float> %.76, <8 x float> %.70)
  %.78 = getelementptr i8, ptr %.71, i64 %a3
  %.79 = getelementptr i8, ptr %.72, i64 4
  %.80 = add i64 %.69, 1
  %.81 = icmp slt i64 %.80, %.3
  br i1 %.81, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.82 = phi <8 x float> [%.65, %"after.1"], [%.77, %"loop.2"]
  %.83 = phi ptr [%.66, %"after.1"], [%.78, %"loop.2"]
  %.84 = phi ptr [%.67, %"after.1"], [%.79, %"loop.2"]
  %.85 = icmp slt i64 0, %a8
  br i1 %.85, label %"loop.3", label %"after.3"
"loop.3":
  %.86 = phi i64 [0, %"after.2"], [%.90, %"loop.3"]
  %.87 = phi <8 x float> [%.82, %"after.2"], [%.89, %"loop.3"]
  %.88 = load <8 x float>, ptr %a7, align 4
  %.89 = fadd <8 x float> %.88, %.87
  %.90 = add i64 %.86, 1
  %.91 = icmp slt i64 %.90, %a8
  br i1 %.91, label %"loop.3", label %"after.3", !llvm.loop !2
"after.3":
  %.92 = phi <8 x float> [%.82, %"after.2"], [%.89, %"loop.3"]
  store <8 x float> %.92, ptr %a7, align 4
  br label %"endif"
"loop.4":
  %.96 = phi i64 [0, %"else"], [%.99, %"loop.4"]
  %.97 = mul i64 %.96, 32
  %.98 = getelementptr i8, ptr %a7, i64 %.97
  store <8 x float> zeroinitializer, ptr %.98
  %.99 = add i64 %.96, 1
  %.100 = icmp slt i64 %.99, %.94
  br i1 %.100, label %"loop.4", label %"after.4", !llvm.loop !2
"after.4":
  br label %"endif"
}
declare <8 x float> @"llvm.fmuladd.v8f32"(<8 x float>, <8 x float>, <8 x float>)
declare void @"llvm.prefetch.p0"(ptr, i32, i32, i32)
define void @"micro_lanes_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10, i64 %a11, i64 %a12) nounwind "prefer-vector-width"="256"
{
"entry":
  switch i64 %a12, label %"others" [i64 2, label %"case_2"]
"others":
  ret void
"case_2":
  tail call void @"tile_2"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10)
  ret void
}
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
