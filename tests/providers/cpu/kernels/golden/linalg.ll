; --- det_HASH, effort all
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"det_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = load i64, ptr %a0
  %.2 = inttoptr i64 %.1 to ptr
  %.3 = getelementptr i8, ptr %a0, i64 8
  %.4 = load i64, ptr %.3
  %.5 = inttoptr i64 %.4 to ptr
  %.6 = getelementptr i8, ptr %a0, i64 32
  %.7 = load i64, ptr %.6
  %.8 = inttoptr i64 %.7 to ptr
  %.9 = getelementptr i8, ptr %a0, i64 16
  %.10 = load i64, ptr %.9
  %.11 = getelementptr i8, ptr %a0, i64 24
  %.12 = load i64, ptr %.11
  %.13 = mul i64 %.12, 4
  %.14 = mul i64 %.13, %.12
  %.15 = mul i64 %a1, %.14
  %.16 = getelementptr i8, ptr %.8, i64 %.15
  %.17 = mul i64 %.10, %a1
  %.18 = udiv i64 %.17, %a2
  %.19 = add i64 %a1, 1
  %.20 = mul i64 %.10, %.19
  %.21 = udiv i64 %.20, %a2
  %.22 = icmp slt i64 %.18, %.21
  br i1 %.22, label %"loop", label %"after"
"loop":
  %.23 = phi i64 [%.18, %"entry"], [%.152, %"after.1"]
  %.24 = mul i64 %.23, %.14
  %.25 = getelementptr i8, ptr %.2, i64 %.24
  call void @"llvm.memcpy.p0.p0.i64"(ptr %.16, ptr %.25, i64 %.14, i1 0)
  %.26 = icmp slt i64 0, %.12
  br i1 %.26, label %"loop.1", label %"after.1"
"after":
  ret void
"loop.1":
  %.27 = phi i64 [0, %"loop"], [%.147, %"endif.1"]
  %.28 = phi float [0x3ff0000000000000, %"loop"], [%.83, %"endif.1"]
  %.29 = mul i64 %.27, %.13
  %.30 = mul i64 %.27, 4
  %.31 = getelementptr i8, ptr %.16, i64 %.29
  %.32 = getelementptr i8, ptr %.31, i64 %.30
  %.33 = load float, ptr %.32, align 4
  %.34 = call float @"llvm.fabs.f32"(float %.33)
  %.35 = add i64 %.27, 1
  %.36 = icmp slt i64 %.35, %.12
  br i1 %.36, label %"loop.2", label %"after.2"
"after.1":
  %.149 = phi float [0x3ff0000000000000, %"loop"], [%.83, %"endif.1"]
  %.150 = mul i64 %.23, 4
  %.151 = getelementptr i8, ptr %.5, i64 %.150
  store float %.149, ptr %.151, align 4
  %.152 = add i64 %.23, 1
  %.153 = icmp slt i64 %.152, %.21
  br i1 %.153, label %"loop", label %"after", !llvm.loop !2
"loop.2":
  %.37 = phi i64 [%.35, %"loop.1"], [%.49, %"loop.2"]
  %.38 = phi i64 [%.27, %"loop.1"], [%.47, %"loop.2"]
  %.39 = phi float [%.34, %"loop.1"], [%.48, %"loop.2"]
  %.40 = mul i64 %.37, %.13
  %.41 = mul i64 %.27, 4
  %.42 = getelementptr i8, ptr %.16, i64 %.40
  %.43 = getelementptr i8, ptr %.42, i64 %.41
  %.44 = load float, ptr %.43, align 4
  %.45 = call float @"llvm.fabs.f32"(float %.44)
  %.46 = fcmp ogt float %.45, %.39
  %.47 = select i1 %.46, i64 %.37, i64 %.38
  %.48 = select i1 %.46, float %.45, float %.39
  %.49 = add i64 %.37, 1
  %.50 = icmp slt i64 %.49, %.12
  br i1 %.50, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.51 = phi i64 [%.27, %"loop.1"], [%.47, %"loop.2"]
  %.52 = phi float [%.34, %"loop.1"], [%.48, %"loop.2"]
  %.53 = icmp ne i64 %.51, %.27
  br i1 %.53, label %"then", label %"endif"
"then":
  %.54 = icmp slt i64 0, %.12
  br i1 %.54, label %"loop.3", label %"after.3"
"endif":
  %.76 = mul i64 %.27, %.13
  %.77 = mul i64 %.27, 4
  %.78 = getelementptr i8, ptr %.16, i64 %.76
  %.79 = getelementptr i8, ptr %.78, i64 %.77
  %.80 = load float, ptr %.79, align 4
  %.81 = fmul float %.28, %.80
  %.82 = fneg float %.81
  %.83 = select i1 %.53, float %.82, float %.81
  %.84 = add i64 %.27, 1
  %.85 = fcmp une float %.80, 0x0000000000000000
  br i1 %.85, label %"then.1", label %"endif.1"
"loop.3":
  %.55 = phi i64 [0, %"then"], [%.74, %"loop.3"]
  %.56 = mul i64 %.27, %.13
  %.57 = mul i64 %.55, 4
  %.58 = getelementptr i8, ptr %.16, i64 %.56
  %.59 = getelementptr i8, ptr %.58, i64 %.57
  %.60 = load float, ptr %.59, align 4
  %.61 = mul i64 %.51, %.13
  %.62 = mul i64 %.55, 4
  %.63 = getelementptr i8, ptr %.16, i64 %.61
  %.64 = getelementptr i8, ptr %.63, i64 %.62
  %.65 = load float, ptr %.64, align 4
  %.66 = mul i64 %.51, %.13
  %.67 = mul i64 %.55, 4
  %.68 = getelementptr i8, ptr %.16, i64 %.66
  %.69 = getelementptr i8, ptr %.68, i64 %.67
  store float %.60, ptr %.69, align 4
  %.70 = mul i64 %.27, %.13
  %.71 = mul i64 %.55, 4
  %.72 = getelementptr i8, ptr %.16, i64 %.70
  %.73 = getelementptr i8, ptr %.72, i64 %.71
  store float %.65, ptr %.73, align 4
  %.74 = add i64 %.55, 1
  %.75 = icmp slt i64 %.74, %.12
  br i1 %.75, label %"loop.3", label %"after.3", !llvm.loop !2
"after.3":
  br label %"endif"
"then.1":
  %.86 = fdiv float 0xbff0000000000000, %.80
  %.87 = icmp slt i64 %.84, %.12
  br i1 %.87, label %"loop.4", label %"after.4"
"endif.1":
  %.147 = add i64 %.27, 1
  %.148 = icmp slt i64 %.147, %.12
  br i1 %.148, label %"loop.1", label %"after.1", !llvm.loop !2
"loop.4":
  %.88 = phi i64 [%.84, %"then.1"], [%.145, %"endif.2"]
  %.89 = mul i64 %.88, %.13
  %.90 = mul i64 %.27, 4
  %.91 = getelementptr i8, ptr %.16, i64 %.89
  %.92 = getelementptr i8, ptr %.91, i64 %.90
  %.93 = load float, ptr %.92, align 4
  %.94 = fmul float %.93, %.86
  %.95 = insertelement <8 x float> poison, float %.94, i32 0
  %.96 = shufflevector <8 x float> %.95, <8 x float> poison, <8 x i32> zeroinitializer
  %.97 = sub i64 %.12, %.84
  %.98 = udiv i64 %.97, 8
  %.99 = mul i64 %.98, 8
  %.100 = add i64 %.84, %.99
  %.101 = icmp slt i64 %.84, %.100
  br i1 %.101, label %"loop.5", label %"after.5"
"after.4":
  br label %"endif.1"
"loop.5":
  %.102 = phi i64 [%.84, %"loop.4"], [%.118, %"loop.5"]
  %.103 = mul i64 %.27, %.13
  %.104 = mul i64 %.102, 4
  %.105 = getelementptr i8, ptr %.16, i64 %.103
  %.106 = getelementptr i8, ptr %.105, i64 %.104
  %.107 = load <8 x float>, ptr %.106, align 4
  %.108 = mul i64 %.88, %.13
  %.109 = mul i64 %.102, 4
  %.110 = getelementptr i8, ptr %.16, i64 %.108
  %.111 = getelementptr i8, ptr %.110, i64 %.109
  %.112 = load <8 x float>, ptr %.111, align 4
  %.113 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.96, <8 x float> %.107, <8 x float> %.112)
  %.114 = mul i64 %.88, %.13
  %.115 = mul i64 %.102, 4
  %.116 = getelementptr i8, ptr %.16, i64 %.114
  %.117 = getelementptr i8, ptr %.116, i64 %.115
  store <8 x float> %.113, ptr %.117, align 4
  %.118 = add i64 %.102, 8
  %.119 = icmp slt i64 %.118, %.100
  br i1 %.119, label %"loop.5", label %"after.5", !llvm.loop !2
"after.5":
  %.120 = icmp slt i64 %.100, %.12
  br i1 %.120, label %"then.2", label %"endif.2"
"then.2":
  %.121 = sub i64 %.12, %.100
  %.122 = icmp slt i64 %.121, 0
  %.123 = select i1 %.122, i64 0, i64 %.121
  %.124 = icmp slt i64 %.123, 8
  %.125 = select i1 %.124, i64 %.123, i64 8
  %.126 = trunc i64 %.125 to i32
  %.127 = insertelement <8 x i32> poison, i32 %.126, i32 0
  %.128 = shufflevector <8 x i32> %.127, <8 x i32> poison, <8 x i32> zeroinitializer
  %.129 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.128
  %.130 = mul i64 %.27, %.13
  %.131 = mul i64 %.100, 4
  %.132 = getelementptr i8, ptr %.16, i64 %.130
  %.133 = getelementptr i8, ptr %.132, i64 %.131
  %.134 = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %.133, i32 4, <8 x i1> %.129, <8 x float> zeroinitializer)
  %.135 = mul i64 %.88, %.13
  %.136 = mul i64 %.100, 4
  %.137 = getelementptr i8, ptr %.16, i64 %.135
  %.138 = getelementptr i8, ptr %.137, i64 %.136
  %.139 = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %.138, i32 4, <8 x i1> %.129, <8 x float> zeroinitializer)
  %.140 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.96, <8 x float> %.134, <8 x float> %.139)
  %.141 = mul i64 %.88, %.13
  %.142 = mul i64 %.100, 4
  %.143 = getelementptr i8, ptr %.16, i64 %.141
  %.144 = getelementptr i8, ptr %.143, i64 %.142
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %.140, ptr %.144, i32 4, <8 x i1> %.129)
  br label %"endif.2"
"endif.2":
  %.145 = add i64 %.88, 1
  %.146 = icmp slt i64 %.145, %.12
  br i1 %.146, label %"loop.4", label %"after.4", !llvm.loop !2
}
declare void @"llvm.memcpy.p0.p0.i64"(ptr, ptr, i64, i1)
declare float @"llvm.fabs.f32"(float)
declare <8 x float> @"llvm.fmuladd.v8f32"(<8 x float>, <8 x float>, <8 x float>)
declare <8 x float> @"llvm.masked.load.v8f32.p0"(ptr, i32, <8 x i1>, <8 x float>)
declare void @"llvm.masked.store.v8f32.p0"(<8 x float>, ptr, i32, <8 x i1>)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
