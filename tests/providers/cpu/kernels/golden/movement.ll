; --- transpose8_HASH, effort all
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define internal void @"square"(ptr %a0, i64 %a1, ptr %a2, i64 %a3) noinline nounwind "prefer-vector-width"="128"
{
"entry":
  %.1 = mul i64 %a1, 0
  %.2 = getelementptr i8, ptr %a0, i64 %.1
  %.3 = load <2 x i64>, ptr %.2, align 8
  %.4 = getelementptr i8, ptr %a0, i64 %a1
  %.5 = load <2 x i64>, ptr %.4, align 8
  %.6 = shufflevector <2 x i64> %.3, <2 x i64> %.5, <2 x i32> <i32 0, i32 2>
  %.7 = shufflevector <2 x i64> %.3, <2 x i64> %.5, <2 x i32> <i32 1, i32 3>
  %.8 = mul i64 %a3, 0
  %.9 = getelementptr i8, ptr %a2, i64 %.8
  store <2 x i64> %.6, ptr %.9, align 8
  %.10 = getelementptr i8, ptr %a2, i64 %a3
  store <2 x i64> %.7, ptr %.10, align 8
  ret void
}
define internal void @"cut_square"(ptr %a0, i64 %a1, ptr %a2, i64 %a3, i64 %a4, i64 %a5) noinline nounwind "prefer-vector-width"="128"
{
"entry":
  %.1 = icmp slt i64 %a5, 0
  %.2 = select i1 %.1, i64 0, i64 %a5
  %.3 = icmp slt i64 %.2, 2
  %.4 = select i1 %.3, i64 %.2, i64 2
  %.5 = trunc i64 %.4 to i32
  %.6 = insertelement <2 x i32> poison, i32 %.5, i32 0
  %.7 = shufflevector <2 x i32> %.6, <2 x i32> poison, <2 x i32> zeroinitializer
  %.8 = icmp slt <2 x i32> <i32 0, i32 1>, %.7
  %.9 = icmp slt i64 %a4, 0
  %.10 = select i1 %.9, i64 0, i64 %a4
  %.11 = icmp slt i64 %.10, 2
  %.12 = select i1 %.11, i64 %.10, i64 2
  %.13 = trunc i64 %.12 to i32
  %.14 = insertelement <2 x i32> poison, i32 %.13, i32 0
  %.15 = shufflevector <2 x i32> %.14, <2 x i32> poison, <2 x i32> zeroinitializer
  %.16 = icmp slt <2 x i32> <i32 0, i32 1>, %.15
  %.17 = sub i64 %a4, 1
  %.18 = icmp slt i64 %.17, 0
  %.19 = select i1 %.18, i64 %.17, i64 0
  %.20 = mul i64 %a1, %.19
  %.21 = getelementptr i8, ptr %a0, i64 %.20
  %.22 = icmp slt i64 %.17, 1
  %.23 = select i1 %.22, i64 %.17, i64 1
  %.24 = mul i64 %a1, %.23
  %.25 = getelementptr i8, ptr %a0, i64 %.24
  %.26 = call <2 x i64> @"llvm.masked.load.v2i64.p0"(ptr %.21, i32 8, <2 x i1> %.8, <2 x i64> zeroinitializer)
  %.27 = call <2 x i64> @"llvm.masked.load.v2i64.p0"(ptr %.25, i32 8, <2 x i1> %.8, <2 x i64> zeroinitializer)
  %.28 = shufflevector <2 x i64> %.26, <2 x i64> %.27, <2 x i32> <i32 0, i32 2>
  %.29 = shufflevector <2 x i64> %.26, <2 x i64> %.27, <2 x i32> <i32 1, i32 3>
  %.30 = icmp slt i64 0, %a5
  br i1 %.30, label %"then", label %"endif"
"then":
  %.31 = mul i64 %a3, 0
  %.32 = getelementptr i8, ptr %a2, i64 %.31
  call void @"llvm.masked.store.v2i64.p0"(<2 x i64> %.28, ptr %.32, i32 8, <2 x i1> %.16)
  br label %"endif"
"endif":
  %.33 = icmp slt i64 1, %a5
  br i1 %.33, label %"then.1", label %"endif.1"
"then.1":
  %.34 = getelementptr i8, ptr %a2, i64 %a3
  call void @"llvm.masked.store.v2i64.p0"(<2 x i64> %.29, ptr %.34, i32 8, <2 x i1> %.16)
  br label %"endif.1"
"endif.1":
  ret void
}
declare <2 x i64> @"llvm.masked.load.v2i64.p0"(ptr, i32, <2 x i1>, <2 x i64>)
declare void @"llvm.masked.store.v2i64.p0"(<2 x i64>, ptr, i32, <2 x i1>)
define void @"transpose8_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="128"
{
"entry":
  %.1 = load i64, ptr %a0
  %.2 = getelementptr i8, ptr %a0, i64 8
  %.3 = load i64, ptr %.2
  %.4 = getelementptr i8, ptr %a0, i64 16
  %.5 = load i64, ptr %.4
  %.6 = getelementptr i8, ptr %a0, i64 24
  %.7 = load i64, ptr %.6
  %.8 = getelementptr i8, ptr %a0, i64 32
  %.9 = load i64, ptr %.8
  %.10 = getelementptr i8, ptr %a0, i64 40
  %.11 = load i64, ptr %.10
  %.12 = getelementptr i8, ptr %a0, i64 48
  %.13 = load i64, ptr %.12
  %.14 = getelementptr i8, ptr %a0, i64 56
  %.15 = load i64, ptr %.14
  %.16 = getelementptr i8, ptr %a0, i64 64
  %.17 = load i64, ptr %.16
  %.18 = getelementptr i8, ptr %a0, i64 72
  %.19 = load i64, ptr %.18
  %.20 = getelementptr i8, ptr %a0, i64 80
  %.21 = load i64, ptr %.20
  %.22 = getelementptr i8, ptr %a0, i64 88
  %.23 = load i64, ptr %.22
  %.24 = getelementptr i8, ptr %a0, i64 96
  %.25 = load i64, ptr %.24
  %.26 = getelementptr i8, ptr %a0, i64 104
  %.27 = load i64, ptr %.26
  %.28 = getelementptr i8, ptr %a0, i64 112
  %.29 = load i64, ptr %.28
  %.30 = getelementptr i8, ptr %a0, i64 120
  %.31 = load i64, ptr %.30
  %.32 = getelementptr i8, ptr %a0, i64 128
  %.33 = load i64, ptr %.32
  %.34 = getelementptr i8, ptr %a0, i64 136
  %.35 = load i64, ptr %.34
  %.36 = getelementptr i8, ptr %a0, i64 144
  %.37 = load i64, ptr %.36
  %.38 = getelementptr i8, ptr %a0, i64 152
  %.39 = load i64, ptr %.38
  %.40 = getelementptr i8, ptr %a0, i64 160
  %.41 = load i64, ptr %.40
  %.42 = mul i64 %.17, %a1
  %.43 = udiv i64 %.42, %a2
  %.44 = add i64 %a1, 1
  %.45 = mul i64 %.17, %.44
  %.46 = udiv i64 %.45, %a2
  %.47 = icmp slt i64 1, %.5
  %.48 = icmp slt i64 1, %.7
  %.49 = and i1 %.47, %.48
  %.50 = icmp slt i64 %.43, %.46
  br i1 %.50, label %"loop", label %"after"
"loop":
  %.51 = phi i64 [%.43, %"entry"], [%.121, %"after.1"]
  %.52 = udiv i64 %.51, %.13
  %.53 = urem i64 %.51, %.13
  %.54 = udiv i64 %.52, %.15
  %.55 = urem i64 %.52, %.15
  %.56 = inttoptr i64 %.1 to ptr
  %.57 = inttoptr i64 %.3 to ptr
  %.58 = urem i64 %.54, %.37
  %.59 = udiv i64 %.54, %.37
  %.60 = mul i64 %.58, %.39
  %.61 = getelementptr i8, ptr %.56, i64 %.60
  %.62 = mul i64 %.58, %.41
  %.63 = getelementptr i8, ptr %.57, i64 %.62
  %.64 = urem i64 %.59, %.31
  %.65 = udiv i64 %.59, %.31
  %.66 = mul i64 %.64, %.33
  %.67 = getelementptr i8, ptr %.61, i64 %.66
  %.68 = mul i64 %.64, %.35
  %.69 = getelementptr i8, ptr %.63, i64 %.68
  %.70 = urem i64 %.65, %.25
  %.71 = udiv i64 %.65, %.25
  %.72 = mul i64 %.70, %.27
  %.73 = getelementptr i8, ptr %.67, i64 %.72
  %.74 = mul i64 %.70, %.29
  %.75 = getelementptr i8, ptr %.69, i64 %.74
  %.76 = udiv i64 %.71, %.19
  %.77 = mul i64 %.71, %.21
  %.78 = getelementptr i8, ptr %.73, i64 %.77
  %.79 = mul i64 %.71, %.23
  %.80 = getelementptr i8, ptr %.75, i64 %.79
  %.81 = mul i64 %.53, 32
  %.82 = mul i64 %.55, 32
  %.83 = add i64 %.81, 32
  %.84 = icmp slt i64 %.83, %.5
  %.85 = select i1 %.84, i64 %.83, i64 %.5
  %.86 = add i64 %.82, 32
  %.87 = icmp slt i64 %.86, %.7
  %.88 = select i1 %.87, i64 %.86, i64 %.7
  %.89 = sub i64 %.5, 2
  %.90 = sub i64 %.7, 2
  %.91 = icmp slt i64 %.82, %.88
  br i1 %.91, label %"loop.1", label %"after.1"
"after":
  ret void
"loop.1":
  %.92 = phi i64 [%.82, %"loop"], [%.119, %"after.2"]
  %.93 = icmp slt i64 %.81, %.85
  br i1 %.93, label %"loop.2", label %"after.2"
"after.1":
  %.121 = add i64 %.51, 1
  %.122 = icmp slt i64 %.121, %.46
  br i1 %.122, label %"loop", label %"after", !llvm.loop !2
"loop.2":
  %.94 = phi i64 [%.81, %"loop.1"], [%.117, %"endif"]
  br i1 %.49, label %"if", label %"else"
"after.2":
  %.119 = add i64 %.92, 2
  %.120 = icmp slt i64 %.119, %.88
  br i1 %.120, label %"loop.1", label %"after.1", !llvm.loop !2
"if":
  %.95 = icmp slt i64 %.94, %.89
  %.96 = select i1 %.95, i64 %.94, i64 %.89
  %.97 = icmp slt i64 %.92, %.90
  %.98 = select i1 %.97, i64 %.92, i64 %.90
  %.99 = mul i64 %.96, %.9
  %.100 = mul i64 %.98, 8
  %.101 = getelementptr i8, ptr %.78, i64 %.99
  %.102 = getelementptr i8, ptr %.101, i64 %.100
  %.103 = mul i64 %.98, %.11
  %.104 = mul i64 %.96, 8
  %.105 = getelementptr i8, ptr %.80, i64 %.103
  %.106 = getelementptr i8, ptr %.105, i64 %.104
  call void @"square"(ptr %.102, i64 %.9, ptr %.106, i64 %.11)
  br label %"endif"
"else":
  %.107 = sub i64 %.5, %.94
  %.108 = sub i64 %.7, %.92
  %.109 = mul i64 %.94, %.9
  %.110 = mul i64 %.92, 8
  %.111 = getelementptr i8, ptr %.78, i64 %.109
  %.112 = getelementptr i8, ptr %.111, i64 %.110
  %.113 = mul i64 %.92, %.11
  %.114 = mul i64 %.94, 8
  %.115 = getelementptr i8, ptr %.80, i64 %.113
  %.116 = getelementptr i8, ptr %.115, i64 %.114
  call void @"cut_square"(ptr %.112, i64 %.9, ptr %.116, i64 %.11, i64 %.107, i64 %.108)
  br label %"endif"
"endif":
  %.117 = add i64 %.94, 2
  %.118 = icmp slt i64 %.117, %.85
  br i1 %.118, label %"loop.2", label %"after.2", !llvm.loop !2
}
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
