; --- ngrams_HASH, effort all
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define internal void @"find"(ptr %a0, i64 %a1, i64 %a2, i64 %a3, ptr %a4) noinline nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = mul i64 %a2, -7046029254386353131
  %.2 = mul i64 %a3, -4417276706812531889
  %.3 = add i64 %.1, %.2
  %.4 = lshr i64 %.3, 32
  %.5 = xor i64 %.3, %.4
  %.6 = and i64 %.5, %a1
  %.7 = alloca i64
  store i64 %.6, ptr %.7
  %.8 = alloca i64
  store i64 0, ptr %.8
  %.9 = alloca i64
  store i64 1, ptr %.9
  br label %"while"
"while":
  %.10 = load i64, ptr %.9
  %.11 = icmp eq i64 %.10, 1
  br i1 %.11, label %"do", label %"done"
"do":
  %.12 = load i64, ptr %.7
  %.13 = mul i64 %.12, 32
  %.14 = getelementptr i8, ptr %a0, i64 %.13
  %.15 = load i64, ptr %.14
  %.16 = icmp eq i64 %.15, %a2
  %.17 = getelementptr i8, ptr %.14, i64 8
  %.18 = load i64, ptr %.17
  %.19 = icmp eq i64 %.18, %a3
  %.20 = and i1 %.16, %.19
  %.21 = ptrtoint ptr %.14 to i64
  %.22 = select i1 %.20, i64 %.21, i64 0
  store i64 %.22, ptr %.8
  %.23 = icmp slt i64 %.15, 0
  %.24 = or i1 %.20, %.23
  %.25 = select i1 %.24, i64 0, i64 1
  store i64 %.25, ptr %.9
  %.26 = load i64, ptr %.7
  %.27 = add i64 %.26, 1
  %.28 = and i64 %.27, %a1
  store i64 %.28, ptr %.7
  br label %"while", !llvm.loop !2
"done":
  %.29 = load i64, ptr %.8
  store i64 %.29, ptr %a4, align 8
  ret void
}
define void @"ngrams_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
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
  %.11 = inttoptr i64 %.10 to ptr
  %.12 = getelementptr i8, ptr %a0, i64 32
  %.13 = load i64, ptr %.12
  %.14 = inttoptr i64 %.13 to ptr
  %.15 = getelementptr i8, ptr %a0, i64 40
  %.16 = load i64, ptr %.15
  %.17 = getelementptr i8, ptr %a0, i64 48
  %.18 = load i64, ptr %.17
  %.19 = getelementptr i8, ptr %a0, i64 56
  %.20 = load i64, ptr %.19
  %.21 = getelementptr i8, ptr %a0, i64 64
  %.22 = load i64, ptr %.21
  %.23 = getelementptr i8, ptr %a0, i64 72
  %.24 = load i64, ptr %.23
  %.25 = getelementptr i8, ptr %a0, i64 80
  %.26 = load i64, ptr %.25
  %.27 = getelementptr i8, ptr %a0, i64 88
  %.28 = load i64, ptr %.27
  %.29 = getelementptr i8, ptr %a0, i64 96
  %.30 = load i64, ptr %.29
  %.31 = alloca [8 x i8], align 64
  %.32 = mul i64 %.16, %a1
  %.33 = udiv i64 %.32, %a2
  %.34 = add i64 %a1, 1
  %.35 = mul i64 %.16, %.34
  %.36 = udiv i64 %.35, %a2
  %.37 = icmp slt i64 %.33, %.36
  %.81 = alloca i64
  %.82 = alloca i64
  %.83 = alloca i64
  br i1 %.37, label %"loop", label %"after"
"loop":
  %.38 = phi i64 [%.33, %"entry"], [%.129, %"after.1"]
  %.39 = mul i64 %.38, %.18
  %.40 = mul i64 %.39, 8
  %.41 = getelementptr i8, ptr %.2, i64 %.40
  %.42 = mul i64 %.38, %.20
  %.43 = mul i64 %.42, 4
  %.44 = getelementptr i8, ptr %.5, i64 %.43
  %.45 = mul i64 %.20, 4
  call void @"llvm.memset.p0.i64"(ptr %.44, i8 0, i64 %.45, i1 0)
  %.46 = icmp slt i64 0, %.18
  br i1 %.46, label %"loop.1", label %"after.1"
"after":
  ret void
"loop.1":
  %.47 = phi i64 [0, %"loop"], [%.127, %"endif"]
  %.48 = mul i64 %.47, 8
  %.49 = getelementptr i8, ptr %.41, i64 %.48
  %.50 = load i64, ptr %.49, align 8
  call void @"find"(ptr %.8, i64 %.22, i64 0, i64 %.50, ptr %.31)
  %.51 = load i64, ptr %.31
  %.52 = icmp ne i64 %.51, 0
  br i1 %.52, label %"then", label %"endif"
"after.1":
  %.129 = add i64 %.38, 1
  %.130 = icmp slt i64 %.129, %.36
  br i1 %.130, label %"loop", label %"after", !llvm.loop !2
"then":
  %.53 = inttoptr i64 %.51 to ptr
  %.54 = icmp slt i64 %.24, 2
  br i1 %.54, label %"then.1", label %"endif.1"
"endif":
  %.127 = add i64 %.47, 1
  %.128 = icmp slt i64 %.127, %.18
  br i1 %.128, label %"loop.1", label %"after.1", !llvm.loop !2
"then.1":
  %.55 = getelementptr i8, ptr %.53, i64 24
  %.56 = load i64, ptr %.55
  %.57 = icmp slt i64 -1, %.56
  br i1 %.57, label %"then.2", label %"endif.2"
"endif.1":
  %.70 = getelementptr i8, ptr %.53, i64 16
  %.71 = load i64, ptr %.70
  %.72 = icmp slt i64 %.18, %.28
  %.73 = select i1 %.72, i64 %.18, i64 %.28
  %.74 = icmp slt i64 1, %.26
  %.75 = add i64 %.73, 1
  %.76 = select i1 %.74, i64 %.75, i64 0
  %.77 = icmp slt i64 0, %.76
  br i1 %.77, label %"loop.2", label %"after.2"
"then.2":
  %.58 = mul i64 %.56, 8
  %.59 = getelementptr i8, ptr %.11, i64 %.58
  %.60 = load i64, ptr %.59
  %.61 = mul i64 %.60, 4
  %.62 = getelementptr i8, ptr %.44, i64 %.61
  %.63 = mul i64 %.56, 4
  %.64 = getelementptr i8, ptr %.14, i64 %.63
  %.65 = load float, ptr %.64, align 4
  %.66 = load float, ptr %.62, align 4
  %.67 = fadd float %.66, %.65
  %.68 = icmp eq i64 %.30, 1
  %.69 = select i1 %.68, float %.65, float %.67
  store float %.69, ptr %.62, align 4
  br label %"endif.2"
"endif.2":
  br label %"endif.1"
"loop.2":
  %.78 = phi i64 [0, %"endif.1"], [%.125, %"done"]
  %.79 = add i64 %.78, 1
  %.80 = add i64 %.47, %.79
  store i64 %.80, ptr %.81
  store i64 2, ptr %.82
  store i64 %.71, ptr %.83
  br label %"while"
"after.2":
  br label %"endif"
"while":
  %.84 = load i64, ptr %.81
  %.85 = icmp slt i64 %.84, %.18
  %.86 = load i64, ptr %.83
  %.87 = icmp slt i64 -1, %.86
  %.88 = and i1 %.85, %.87
  %.89 = load i64, ptr %.82
  %.90 = add i64 %.26, 1
  %.91 = icmp slt i64 %.89, %.90
  %.92 = and i1 %.88, %.91
  br i1 %.92, label %"do", label %"done"
"do":
  %.93 = load i64, ptr %.83
  %.94 = load i64, ptr %.81
  %.95 = mul i64 %.94, 8
  %.96 = getelementptr i8, ptr %.41, i64 %.95
  %.97 = load i64, ptr %.96, align 8
  call void @"find"(ptr %.8, i64 %.22, i64 %.93, i64 %.97, ptr %.31)
  %.98 = load i64, ptr %.31
  store i64 -1, ptr %.83
  %.99 = icmp ne i64 %.98, 0
  br i1 %.99, label %"then.3", label %"endif.3"
"done":
  %.125 = add i64 %.78, 1
  %.126 = icmp slt i64 %.125, %.76
  br i1 %.126, label %"loop.2", label %"after.2", !llvm.loop !2
"then.3":
  %.100 = inttoptr i64 %.98 to ptr
  %.101 = getelementptr i8, ptr %.100, i64 16
  %.102 = load i64, ptr %.101
  store i64 %.102, ptr %.83
  %.103 = load i64, ptr %.82
  %.104 = add i64 %.103, 1
  %.105 = icmp slt i64 %.24, %.104
  br i1 %.105, label %"then.4", label %"endif.4"
"endif.3":
  %.121 = load i64, ptr %.81
  %.122 = add i64 %.121, %.79
  store i64 %.122, ptr %.81
  %.123 = load i64, ptr %.82
  %.124 = add i64 %.123, 1
  store i64 %.124, ptr %.82
  br label %"while", !llvm.loop !2
"then.4":
  %.106 = getelementptr i8, ptr %.100, i64 24
  %.107 = load i64, ptr %.106
  %.108 = icmp slt i64 -1, %.107
  br i1 %.108, label %"then.5", label %"endif.5"
"endif.4":
  br label %"endif.3"
"then.5":
  %.109 = mul i64 %.107, 8
  %.110 = getelementptr i8, ptr %.11, i64 %.109
  %.111 = load i64, ptr %.110
  %.112 = mul i64 %.111, 4
  %.113 = getelementptr i8, ptr %.44, i64 %.112
  %.114 = mul i64 %.107, 4
  %.115 = getelementptr i8, ptr %.14, i64 %.114
  %.116 = load float, ptr %.115, align 4
  %.117 = load float, ptr %.113, align 4
  %.118 = fadd float %.117, %.116
  %.119 = icmp eq i64 %.30, 1
  %.120 = select i1 %.119, float %.116, float %.118
  store float %.120, ptr %.113, align 4
  br label %"endif.5"
"endif.5":
  br label %"endif.4"
}
declare void @"llvm.memset.p0.i64"(ptr, i8, i64, i1)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
