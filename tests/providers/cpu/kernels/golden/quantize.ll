; --- quantize_range_HASH, effort all
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"quantize_range_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = load i64, ptr %a0
  %.2 = inttoptr i64 %.1 to ptr
  %.3 = getelementptr i8, ptr %a0, i64 8
  %.4 = load i64, ptr %.3
  %.5 = inttoptr i64 %.4 to ptr
  %.6 = getelementptr i8, ptr %a0, i64 16
  %.7 = load i64, ptr %.6
  %.8 = mul i64 64, %a1
  %.9 = udiv i64 %.8, %a2
  %.10 = add i64 %a1, 1
  %.11 = mul i64 64, %.10
  %.12 = udiv i64 %.11, %a2
  %.13 = icmp slt i64 %.9, %.12
  br i1 %.13, label %"loop", label %"after"
"loop":
  %.14 = phi i64 [%.9, %"entry"], [%.136, %"after.2"]
  %.15 = mul i64 %.7, %.14
  %.16 = udiv i64 %.15, 64
  %.17 = add i64 %.14, 1
  %.18 = mul i64 %.7, %.17
  %.19 = udiv i64 %.18, 64
  %.20 = sub i64 %.19, %.16
  %.21 = udiv i64 %.20, 32
  %.22 = mul i64 %.21, 32
  %.23 = add i64 %.16, %.22
  %.24 = icmp slt i64 %.16, %.23
  br i1 %.24, label %"loop.1", label %"after.1"
"after":
  ret void
"loop.1":
  %.25 = phi i64 [%.16, %"loop"], [%.65, %"loop.1"]
  %.26 = phi <8 x float> [zeroinitializer, %"loop"], [%.50, %"loop.1"]
  %.27 = phi <8 x float> [zeroinitializer, %"loop"], [%.52, %"loop.1"]
  %.28 = phi <8 x float> [zeroinitializer, %"loop"], [%.54, %"loop.1"]
  %.29 = phi <8 x float> [zeroinitializer, %"loop"], [%.56, %"loop.1"]
  %.30 = phi <8 x float> [zeroinitializer, %"loop"], [%.58, %"loop.1"]
  %.31 = phi <8 x float> [zeroinitializer, %"loop"], [%.60, %"loop.1"]
  %.32 = phi <8 x float> [zeroinitializer, %"loop"], [%.62, %"loop.1"]
  %.33 = phi <8 x float> [zeroinitializer, %"loop"], [%.64, %"loop.1"]
  %.34 = mul i64 %.25, 4
  %.35 = getelementptr i8, ptr %.2, i64 %.34
  %.36 = load <8 x float>, ptr %.35, align 4
  %.37 = mul i64 %.25, 4
  %.38 = getelementptr i8, ptr %.2, i64 %.37
  %.39 = getelementptr i8, ptr %.38, i64 32
  %.40 = load <8 x float>, ptr %.39, align 4
  %.41 = mul i64 %.25, 4
  %.42 = getelementptr i8, ptr %.2, i64 %.41
  %.43 = getelementptr i8, ptr %.42, i64 64
  %.44 = load <8 x float>, ptr %.43, align 4
  %.45 = mul i64 %.25, 4
  %.46 = getelementptr i8, ptr %.2, i64 %.45
  %.47 = getelementptr i8, ptr %.46, i64 96
  %.48 = load <8 x float>, ptr %.47, align 4
  %.49 = fcmp olt <8 x float> %.36, %.26
  %.50 = select <8 x i1> %.49, <8 x float> %.36, <8 x float> %.26
  %.51 = fcmp olt <8 x float> %.40, %.27
  %.52 = select <8 x i1> %.51, <8 x float> %.40, <8 x float> %.27
  %.53 = fcmp olt <8 x float> %.44, %.28
  %.54 = select <8 x i1> %.53, <8 x float> %.44, <8 x float> %.28
  %.55 = fcmp olt <8 x float> %.48, %.29
  %.56 = select <8 x i1> %.55, <8 x float> %.48, <8 x float> %.29
  %.57 = fcmp ogt <8 x float> %.36, %.30
  %.58 = select <8 x i1> %.57, <8 x float> %.36, <8 x float> %.30
  %.59 = fcmp ogt <8 x float> %.40, %.31
  %.60 = select <8 x i1> %.59, <8 x float> %.40, <8 x float> %.31
  %.61 = fcmp ogt <8 x float> %.44, %.32
  %.62 = select <8 x i1> %.61, <8 x float> %.44, <8 x float> %.32
  %.63 = fcmp ogt <8 x float> %.48, %.33
  %.64 = select <8 x i1> %.63, <8 x float> %.48, <8 x float> %.33
  %.65 = add i64 %.25, 32
  %.66 = icmp slt i64 %.65, %.23
  br i1 %.66, label %"loop.1", label %"after.1", !llvm.loop !2
"after.1":
  %.67 = phi <8 x float> [zeroinitializer, %"loop"], [%.50, %"loop.1"]
  %.68 = phi <8 x float> [zeroinitializer, %"loop"], [%.52, %"loop.1"]
  %.69 = phi <8 x float> [zeroinitializer, %"loop"], [%.54, %"loop.1"]
  %.70 = phi <8 x float> [zeroinitializer, %"loop"], [%.56, %"loop.1"]
  %.71 = phi <8 x float> [zeroinitializer, %"loop"], [%.58, %"loop.1"]
  %.72 = phi <8 x float> [zeroinitializer, %"loop"], [%.60, %"loop.1"]
  %.73 = phi <8 x float> [zeroinitializer, %"loop"], [%.62, %"loop.1"]
  %.74 = phi <8 x float> [zeroinitializer, %"loop"], [%.64, %"loop.1"]
  %.75 = fcmp olt <8 x float> %.67, %.68
  %.76 = select <8 x i1> %.75, <8 x float> %.67, <8 x float> %.68
  %.77 = fcmp olt <8 x float> %.76, %.69
  %.78 = select <8 x i1> %.77, <8 x float> %.76, <8 x float> %.69
  %.79 = fcmp olt <8 x float> %.78, %.70
  %.80 = select <8 x i1> %.79, <8 x float> %.78, <8 x float> %.70
  %.81 = fcmp ogt <8 x float> %.71, %.72
  %.82 = select <8 x i1> %.81, <8 x float> %.71, <8 x float> %.72
  %.83 = fcmp ogt <8 x float> %.82, %.73
  %.84 = select <8 x i1> %.83, <8 x float> %.82, <8 x float> %.73
  %.85 = fcmp ogt <8 x float> %.84, %.74
  %.86 = select <8 x i1> %.85, <8 x float> %.84, <8 x float> %.74
  %.87 = icmp slt i64 %.23, %.19
  br i1 %.87, label %"loop.2", label %"after.2"
"loop.2":
  %.88 = phi i64 [%.23, %"after.1"], [%.107, %"loop.2"]
  %.89 = phi <8 x float> [%.80, %"after.1"], [%.104, %"loop.2"]
  %.90 = phi <8 x float> [%.86, %"after.1"], [%.106, %"loop.2"]
  %.91 = mul i64 %.88, 4
  %.92 = getelementptr i8, ptr %.2, i64 %.91
  %.93 = sub i64 %.19, %.88
  %.94 = icmp slt i64 %.93, 0
  %.95 = select i1 %.94, i64 0, i64 %.93
  %.96 = icmp slt i64 %.95, 8
  %.97 = select i1 %.96, i64 %.95, i64 8
  %.98 = trunc i64 %.97 to i32
  %.99 = insertelement <8 x i32> poison, i32 %.98, i32 0
  %.100 = shufflevector <8 x i32> %.99, <8 x i32> poison, <8 x i32> zeroinitializer
  %.101 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.100
  %.102 = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %.92, i32 4, <8 x i1> %.101, <8 x float> zeroinitializer)
  %.103 = fcmp olt <8 x float> %.102, %.89
  %.104 = select <8 x i1> %.103, <8 x float> %.102, <8 x float> %.89
  %.105 = fcmp ogt <8 x float> %.102, %.90
  %.106 = select <8 x i1> %.105, <8 x float> %.102, <8 x float> %.90
  %.107 = add i64 %.88, 8
  %.108 = icmp slt i64 %.107, %.19
  br i1 %.108, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.109 = phi <8 x float> [%.80, %"after.1"], [%.104, %"loop.2"]
  %.110 = phi <8 x float> [%.86, %"after.1"], [%.106, %"loop.2"]
  %.111 = shufflevector <8 x float> %.109, <8 x float> %.109, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3>
  %.112 = fcmp olt <8 x float> %.109, %.111
  %.113 = select <8 x i1> %.112, <8 x float> %.109, <8 x float> %.111
  %.114 = shufflevector <8 x float> %.113, <8 x float> %.113, <8 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5>
  %.115 = fcmp olt <8 x float> %.113, %.114
  %.116 = select <8 x i1> %.115, <8 x float> %.113, <8 x float> %.114
  %.117 = shufflevector <8 x float> %.116, <8 x float> %.116, <8 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6>
  %.118 = fcmp olt <8 x float> %.116, %.117
  %.119 = select <8 x i1> %.118, <8 x float> %.116, <8 x float> %.117
  %.120 = extractelement <8 x float> %.119, i32 0
  %.121 = shufflevector <8 x float> %.110, <8 x float> %.110, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3>
  %.122 = fcmp ogt <8 x float> %.110, %.121
  %.123 = select <8 x i1> %.122, <8 x float> %.110, <8 x float> %.121
  %.124 = shufflevector <8 x float> %.123, <8 x float> %.123, <8 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5>
  %.125 = fcmp ogt <8 x float> %.123, %.124
  %.126 = select <8 x i1> %.125, <8 x float> %.123, <8 x float> %.124
  %.127 = shufflevector <8 x float> %.126, <8 x float> %.126, <8 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6>
  %.128 = fcmp ogt <8 x float> %.126, %.127
  %.129 = select <8 x i1> %.128, <8 x float> %.126, <8 x float> %.127
  %.130 = extractelement <8 x float> %.129, i32 0
  %.131 = mul i64 %.14, 4
  %.132 = getelementptr i8, ptr %.5, i64 %.131
  store float %.120, ptr %.132, align 4
  %.133 = add i64 %.14, 64
  %.134 = mul i64 %.133, 4
  %.135 = getelementptr i8, ptr %.5, i64 %.134
  store float %.130, ptr %.135, align 4
  %.136 = add i64 %.14, 1
  %.137 = icmp slt i64 %.136, %.12
  br i1 %.137, label %"loop", label %"after", !llvm.loop !2
}
declare <8 x float> @"llvm.masked.load.v8f32.p0"(ptr, i32, <8 x i1>, <8 x float>)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
