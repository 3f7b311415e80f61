; --- micro_steps_float_1x1_HASH, effort code
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"micro_steps_float_1x1_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10) nounwind "prefer-vector-width"="128"
{
"entry":
  %.1 = icmp slt i64 0, %a6
  br i1 %.1, label %"loop", label %"after"
"loop":
  %.2 = phi i64 [0, %"entry"], [%.46, %"after.1"]
  %.3 = phi <4 x float> [zeroinitializer, %"entry"], [%.41, %"after.1"]
  %.4 = phi <4 x float> [zeroinitializer, %"entry"], [%.42, %"after.1"]
  %.5 = phi ptr [%a9, %"entry"], [%.43, %"after.1"]
  %.6 = phi ptr [%a2, %"entry"], [%.44, %"after.1"]
  %.7 = phi i64 [0, %"entry"], [%.45, %"after.1"]
  %.8 = mul i64 %.2, 8
  %.9 = getelementptr i8, ptr %a5, i64 %.8
  %.10 = load i64, ptr %.9
  %.11 = add i64 %a3, %.7
  %.12 = add i64 %.10, %.11
  %.13 = getelementptr i8, ptr %a0, i64 %.12
  call void @"llvm.prefetch.p0"(ptr %.13, i32 0, i32 3, i32 1)
  call void @"llvm.prefetch.p0"(ptr %.5, i32 0, i32 2, i32 1)
  %.14 = getelementptr i8, ptr %.5, i64 %a10
  %.15 = sub i64 %a1, %.7
  %.16 = icmp slt i64 0, 8
  br i1 %.16, label %"loop.1", label %"after.1"
"after":
  %.48 = phi <4 x float> [zeroinitializer, %"entry"], [%.41, %"after.1"]
  %.49 = phi <4 x float> [zeroinitializer, %"entry"], [%.42, %"after.1"]
  %.50 = phi ptr [%a9, %"entry"], [%.43, %"after.1"]
  %.51 = phi ptr [%a2, %"entry"], [%.44, %"after.1"]
  %.52 = phi i64 [0, %"entry"], [%.45, %"after.1"]
  %.53 = icmp slt i64 0, %a4
  br i1 %.53, label %"loop.2", label %"after.2"
"loop.1":
  %.17 = phi i64 [0, %"loop"], [%.39, %"loop.1"]
  %.18 = phi <4 x float> [%.3, %"loop"], [%.30, %"loop.1"]
  %.19 = phi <4 x float> [%.4, %"loop"], [%.37, %"loop.1"]
  %.20 = phi ptr [%.14, %"loop"], [%.20, %"loop.1"]
  %.21 = phi ptr [%.6, %"loop"], [%.38, %"loop.1"]
  %.22 = phi i64 [%.15, %"loop"], [%.22, %"loop.1"]
  %.23 = mul i64 %.17, 4
  %.24 = add i64 %.10, %.23
  %.25 = getelementptr i8, ptr %a0, i64 %.24
  %.26 = load <4 x float>, ptr %.21, align 4
  %.27 = load float, ptr %.25, align 4
  %.28 = insertelement <4 x float> poison, float %.27, i32 0
  %.29 = shufflevector <4 x float> %.28, <4 x float> poison, <4 x i32> zeroinitializer
  %.30 = call <4 x float> @"llvm.fmuladd.v4f32"(<4 x float> %.29, <4 x float> %.26, <4 x float> %.18)
  %.31 = getelementptr i8, ptr %.21, i64 16
  %.32 = load <4 x float>, ptr %.31, align 4
  %.33 = getelementptr i8, ptr %.25, i64 4
  %.34 = load float, ptr %.33, align 4
  %.35 = insertelement <4 x float> poison, float %.34, i32 0
  %.36 = shufflevector <4 x float> %.35, <4 x float> poison, <4 x i32> zeroinitializer
  %.37 = call <4 x float> @"llvm.fmuladd.v4f32"(<4 x float> %.36, <4 x float> %.32, <4 x float> %.19)
  %.38 = getelementptr i8, ptr %.21, i64 32
  %.39 = add i64 %.17, 2
  %.40 = icmp slt i64 %.39, 8
  br i1 %.40, label %"loop.1", label %"after.1", !llvm.loop !2
"after.1":
  %.41 = phi <4 x float> [%.3, %"loop"], [%.30, %"loop.1"]
  %.42 = phi <4 x float> [%.4, %"loop"], [%.37, %"loop.1"]
  %.43 = phi ptr [%.14, %"loop"], [%.20, %"loop.1"]
  %.44 = phi ptr [%.6, %"loop"], [%.38, %"loop.1"]
  %.45 = phi i64 [%.15, %"loop"], [%.22, %"loop.1"]
  %.46 = add i64 %.2, 1
  %.47 = icmp slt i64 %.46, %a6
  br i1 %.47, label %"loop", label %"after", !llvm.loop !2
"loop.2":
  %.54 = phi i64 [0, %"after"], [%.72, %"loop.2"]
  %.55 = phi <4 x float> [%.48, %"after"], [%.70, %"loop.2"]
  %.56 = phi <4 x float> [%.49, %"after"], [%.56, %"loop.2"]
  %.57 = phi ptr [%.50, %"after"], [%.57, %"loop.2"]
  %.58 = phi ptr [%.51, %"after"], [%.71, %"loop.2"]
  %.59 = phi i64 [%.52, %"after"], [%.59, %"loop.2"]
  %.60 = mul i64 %a6, 8
  %.61 = getelementptr i8, ptr %a5, i64 %.60
  %.62 = load i64, ptr %.61
  %.63 = mul i64 %.54, 4
  %.64 = add i64 %.62, %.63
  %.65 = getelementptr i8, ptr %a0, i64 %.64
  %.66 = load <4 x float>, ptr %.58, align 4
  %.67 = load float, ptr %.65, align 4
  %.68 = insertelement <4 x float> poison, float %.67, i32 0
  %.69 = shufflevector <4 x float> %.68, <4 x float> poison, <4 x i32> zeroinitializer
  %.70 = call <4 x float> @"llvm.fmuladd.v4f32"(<4 x float> %.69, <4 x float> %.66, <4 x float> %.55)
  %.71 = getelementptr i8, ptr %.58, i64 16
  %.72 = add i64 %.54, 1
  %.73 = icmp slt i64 %.72, %a4
  br i1 %.73, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.74 = phi <4 x float> [%.48, %"after"], [%.70, %"loop.2"]
  %.75 = phi <4 x float> [%.49, %"after"], [%.56, %"loop.2"]
  %.76 = phi ptr [%.50, %"after"], [%.57, %"loop.2"]
  %.77 = phi ptr [%.51, %"after"], [%.71, %"loop.2"]
  %.78 = phi i64 [%.52, %"after"], [%.59, %"loop.2"]
  %.79 = fadd <4 x float> %.74, %.75
  %.80 = icmp slt i64 1, %a8
  br i1 %.80, label %"if", label %"else"
"if":
  %.81 = inttoptr i64 %a8 to ptr
  %.82 = load i64, ptr %.81
  %.83 = icmp slt i64 0, %.82
  br i1 %.83, label %"taken", label %"after.3"
"else":
  %.141 = icmp slt i64 0, %a8
  br i1 %.141, label %"taken.1", label %"after.4"
"endif":
  ret void
"taken":
  %.84 = load <4 x float>, ptr %a7
  %.85 = fadd <4 x float> %.84, %.79
  br label %"after.3"
"after.3":
  %.86 = phi <4 x float> [%.79, %"if"], [%.85, %"taken"]
  %.87 = getelementptr i8, ptr %.81, i64 8
  %.88 = load i64, ptr %.87
  %.89 = getelementptr i8, ptr %.81, i64 16
  %.90 = load i64, ptr %.89
  %.91 = getelementptr i8, ptr %.81, i64 24
  %.92 = load i64, ptr %.91
  %.93 = getelementptr i8, ptr %.81, i64 32
  %.94 = load i64, ptr %.93
  %.95 = getelementptr i8, ptr %.81, i64 48
  %.96 = load float, ptr %.95, align 4
  %.97 = insertelement <4 x float> poison, float %.96, i32 0
  %.98 = shufflevector <4 x float> %.97, <4 x float> poison, <4 x i32> zeroinitializer
  %.99 = getelementptr i8, ptr %.81, i64 56
  %.100 = load float, ptr %.99, align 4
  %.101 = insertelement <4 x float> poison, float %.100, i32 0
  %.102 = shufflevector <4 x float> %.101, <4 x float> poison, <4 x i32> zeroinitializer
  %.103 = icmp slt i64 0, %.94
  br i1 %.103, label %"if.1", label %"else.1"
"if.1":
  %.104 = icmp slt i64 %.94, 0
  %.105 = select i1 %.104, i64 0, i64 %.94
  %.106 = icmp slt i64 %.105, 4
  %.107 = select i1 %.106, i64 %.105, i64 4
  %.108 = trunc i64 %.107 to i32
  %.109 = insertelement <4 x i32> poison, i32 %.108, i32 0
  %.110 = shufflevector <4 x i32> %.109, <4 x i32> poison, <4 x i32> zeroinitializer
  %.111 = icmp slt <4 x i32> <i32 0, i32 1, i32 2, i32 3>, %.110
  %.112 = inttoptr i64 %.92 to ptr
  %.113 = call <4 x float> @"llvm.masked.load.v4f32.p0"(ptr %.112, i32 4, <4 x i1> %.111, <4 x float> zeroinitializer)
  %.114 = inttoptr i64 %.88 to ptr
  %.115 = mul i64 %.90, 0
  %.116 = getelementptr i8, ptr %.114, i64 %.115
  %.117 = fadd <4 x float> %.86, %.113
  %.118 = fcmp olt <4 x float> %.117, %.98
  %.119 = select <4 x i1> %.118, <4 x float> %.98, <4 x float> %.117
  %.120 = fcmp ogt <4 x float> %.119, %.102
  %.121 = select <4 x i1> %.120, <4 x float> %.102, <4 x float> %.119
  call void @"llvm.masked.store.v4f32.p0"(<4 x float> %.121, ptr %.116, i32 4, <4 x i1> %.111)
  br label %"endif.1"
"else.1":
  %.122 = getelementptr i8, ptr %.81, i64 40
  %.123 = load i64, ptr %.122
  %.124 = icmp slt i64 0, %.123
  br i1 %.124, label %"if.2", label %"else.2"
"endif.1":
  br label %"endif"
"if.2":
  %.125 = inttoptr i64 %.92 to ptr
  %.126 = load <4 x float>, ptr %.125, align 4
  %.127 = inttoptr i64 %.88 to ptr
  %.128 = mul i64 %.90, 0
  %.129 = getelementptr i8, ptr %.127, i64 %.128
  %.130 = fadd <4 x float> %.86, %.126
  %.131 = fcmp olt <4 x float> %.130, %.98
  %.132 = select <4 x i1> %.131, <4 x float> %.98, <4 x float> %.130
  %.133 = fcmp ogt <4 x float> %.132, %.102
  %.134 = select <4 x i1> %.133, <4 x float> %.102, <4 x float> %.132
  store <4 x float> %.134, ptr %.129, align 4
  br label %"endif.2"
"else.2":
  %.135 = inttoptr i64 %.92 to ptr
  %.136 = load <4 x float>, ptr %.135, align 4
  %.137 = inttoptr i64 %.88 to ptr
  %.138 = mul i64 %.90, 0
  %.139 = getelementptr i8, ptr %.137, i64 %.138
  %.140 = fadd <4 x float> %.86, %.136
  store <4 x float> %.140, ptr %.139, align 4
  br label %"endif.2"
"endif.2":
  br label %"endif.1"
"taken.1":
  %.142 = load <4 x float>, ptr %a7
  %.143 = fadd <4 x float> %.142, %.79
  br label %"after.4"
"after.4":
  %.144 = phi <4 x float> [%.79, %"else"], [%.143, %"taken.1"]
  store <4 x float> %.144, ptr %a7
  br label %"endif"
}
declare void @"llvm.prefetch.p0"(ptr, i32, i32, i32)
declare <4 x float> @"llvm.fmuladd.v4f32"(<4 x float>, <4 x float>, <4 x float>)
declare <4 x float> @"llvm.masked.load.v4f32.p0"(ptr, i32, <4 x i1>, <4 x float>)
declare void @"llvm.masked.store.v4f32.p0"(<4 x float>, ptr, i32, <4 x i1>)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}

; --- micro_steps_float_HASH, effort code
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
declare void @"micro_steps_float_1x1_HASH"(ptr, i64, ptr, i64, i64, ptr, i64, ptr, i64, ptr, i64)
define void @"micro_steps_float_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10, i64 %a11, i64 %a12) nounwind "prefer-vector-width"="128"
{
"entry":
  %.1 = sub i64 %a12, 1
  %.2 = add i64 %.1, %a11
  switch i64 %.2, label %"others" [i64 1, label %"case_1"]
"others":
  ret void
"case_1":
  tail call void @"micro_steps_float_1x1_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, ptr %a5, i64 %a6, ptr %a7, i64 %a8, ptr %a9, i64 %a10)
  ret void
}
