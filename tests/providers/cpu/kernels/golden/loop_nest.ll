; --- loop_nest_HASH, effort all
; ModuleID = "kernel"
define internal void @"body"(i64 %a0, i64 %a1, ptr %a2, ptr noalias %a3, ptr noalias %a4) noinline nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = getelementptr i64, ptr %a2, i64 2
  %.2 = load i64, ptr %.1
  br label %"work"
"work":
  %.3 = mul i64 %.2, 1
  %.4 = mul i64 %.3, 1
  %.5 = mul i64 %.4, %a0
  %.6 = udiv i64 %.5, %a1
  %.7 = add i64 %a0, 1
  %.8 = mul i64 %.4, %.7
  %.9 = udiv i64 %.8, %a1
  br label %"outer.head"
"outer.head":
  %.10 = phi i64 [%.130, %"inner.exit"], [%.6, %"work"]
  %.11 = icmp ult i64 %.10, %.9
  br i1 %.11, label %"outer.body", label %"outer.exit"
"outer.body":
  %.14 = mul nsw i64 %.10, 72
  %.53 = mul nsw i64 %.10, 12
  br label %"inner.head"
"outer.exit":
  ret void
"inner.head":
  %.12 = phi i64 [%.129, %"inner.body"], [0, %"outer.body"]
  %.13 = icmp ult i64 %.12, 4
  br i1 %.13, label %"inner.body", label %"inner.exit"
"inner.body":
  %.15 = mul nsw i64 %.12, 2
  %.16 = mul nsw i64 %.15, 9
  %.17 = add nsw i64 %.14, %.16
  %.18 = getelementptr float, ptr %a3, i64 %.17
  %.19 = load float, ptr %.18, align 4
  %.20 = add nsw i64 %.17, 1
  %.21 = getelementptr float, ptr %a3, i64 %.20
  %.22 = load float, ptr %.21, align 4
  %.23 = add nsw i64 %.17, 2
  %.24 = getelementptr float, ptr %a3, i64 %.23
  %.25 = load float, ptr %.24, align 4
  %.26 = add nsw i64 %.15, 1
  %.27 = mul nsw i64 %.26, 9
  %.28 = add nsw i64 %.14, %.27
  %.29 = getelementptr float, ptr %a3, i64 %.28
  %.30 = load float, ptr %.29, align 4
  %.31 = add nsw i64 %.28, 1
  %.32 = getelementptr float, ptr %a3, i64 %.31
  %.33 = load float, ptr %.32, align 4
  %.34 = add nsw i64 %.28, 2
  %.35 = getelementptr float, ptr %a3, i64 %.34
  %.36 = load float, ptr %.35, align 4
  %.37 = fcmp nnan nsz ogt float %.22, %.19
  %.38 = select nnan nsz i1 %.37, float %.22, float %.19
  %.39 = fcmp nnan nsz ogt float %.25, %.38
  %.40 = select nnan nsz i1 %.39, float %.25, float %.38
  %.41 = fcmp nnan nsz ogt float %.30, %.40
  %.42 = select nnan nsz i1 %.41, float %.30, float %.40
  %.43 = fcmp nnan nsz ogt float %.33, %.42
  %.44 = select nnan nsz i1 %.43, float %.33, float %.42
  %.45 = fcmp nnan nsz ogt float %.36, %.44
  %.46 = select nnan nsz i1 %.45, float %.36, float %.44
  %.47 = fcmp uno float %.19, %.22
  %.48 = fcmp uno float %.25, %.30
  %.49 = fcmp uno float %.33, %.36
  %.50 = or i1 %.47, %.48
  %.51 = or i1 %.50, %.49
  %.52 = select i1 %.51, float 0x7ff8000000000000, float %.46
  %.54 = mul nsw i64 %.12, 3
  %.55 = add nsw i64 %.53, %.54
  %.56 = getelementptr float, ptr %a4, i64 %.55
  store float %.52, ptr %.56, align 4
  %.57 = add nsw i64 %.17, 3
  %.58 = getelementptr float, ptr %a3, i64 %.57
  %.59 = load float, ptr %.58, align 4
  %.60 = add nsw i64 %.17, 4
  %.61 = getelementptr float, ptr %a3, i64 %.60
  %.62 = load float, ptr %.61, align 4
  %.63 = add nsw i64 %.17, 5
  %.64 = getelementptr float, ptr %a3, i64 %.63
  %.65 = load float, ptr %.64, align 4
  %.66 = add nsw i64 %.28, 3
  %.67 = getelementptr float, ptr %a3, i64 %.66
  %.68 = load float, ptr %.67, align 4
  %.69 = add nsw i64 %.28, 4
  %.70 = getelementptr float, ptr %a3, i64 %.69
  %.71 = load float, ptr %.70, align 4
  %.72 = add nsw i64 %.28, 5
  %.73 = getelementptr float, ptr %a3, i64 %.72
  %.74 = load float, ptr %.73, align 4
  %.75 = fcmp nnan nsz ogt float %.62, %.59
  %.76 = select nnan nsz i1 %.75, float %.62, float %.59
  %.77 = fcmp nnan nsz ogt float %.65, %.76
  %.78 = select nnan nsz i1 %.77, float %.65, float %.76
  %.79 = fcmp nnan nsz ogt float %.68, %.78
  %.80 = select nnan nsz i1 %.79, float %.68, float %.78
  %.81 = fcmp nnan nsz ogt float %.71, %.80
  %.82 = select nnan nsz i1 %.81, float %.71, float %.80
  %.83 = fcmp nnan nsz ogt float %.74, %.82
  %.84 = select nnan nsz i1 %.83, float %.74, float %.82
  %.85 = fcmp uno float %.59, %.62
  %.86 = fcmp uno float %.65, %.68
  %.87 = fcmp uno float %.71, %.74
  %.88 = or i1 %.85, %.86
  %.89 = or i1 %.88, %.87
  %.90 = select i1 %.89, float 0x7ff8000000000000, float %.84
  %.91 = add nsw i64 %.55, 1
  %.92 = getelementptr float, ptr %a4, i64 %.91
  store float %.90, ptr %.92, align 4
  %.93 = add nsw i64 %.17, 6
  %.94 = getelementptr float, ptr %a3, i64 %.93
  %.95 = load float, ptr %.94, align 4
  %.96 = add nsw i64 %.17, 7
  %.97 = getelementptr float, ptr %a3, i64 %.96
  %.98 = load float, ptr %.97, align 4
  %.99 = add nsw i64 %.17, 8
  %.100 = getelementptr float, ptr %a3, i64 %.99
  %.101 = load float, ptr %.100, align 4
  %.102 = add nsw i64 %.28, 6
  %.103 = getelementptr float, ptr %a3, i64 %.102
  %.104 = load float, ptr %.103, align 4
  %.105 = add nsw i64 %.28, 7
  %.106 = getelementptr float, ptr %a3, i64 %.105
  %.107 = load float, ptr %.106, align 4
  %.108 = add nsw i64 %.28, 8
  %.109 = getelementptr float, ptr %a3, i64 %.108
  %.110 = load float, ptr %.109, align 4
  %.111 = fcmp nnan nsz ogt float %.98, %.95
  %.112 = select nnan nsz i1 %.111, float %.98, float %.95
  %.113 = fcmp nnan nsz ogt float %.101, %.112
  %.114 = select nnan nsz i1 %.113, float %.101, float %.112
  %.115 = fcmp nnan nsz ogt float %.104, %.114
  %.116 = select nnan nsz i1 %.115, float %.104, float %.114
  %.117 = fcmp nnan nsz ogt float %.107, %.116
  %.118 = select nnan nsz i1 %.117, float %.107, float %.116
  %.119 = fcmp nnan nsz ogt float %.110, %.118
  %.120 = select nnan nsz i1 %.119, float %.110, float %.118
  %.121 = fcmp uno float %.95, %.98
  %.122 = fcmp uno float %.101, %.104
  %.123 = fcmp uno float %.107, %.110
  %.124 = or i1 %.121, %.122
  %.125 = or i1 %.124, %.123
  %.126 = select i1 %.125, float 0x7ff8000000000000, float %.120
  %.127 = add nsw i64 %.55, 2
  %.128 = getelementptr float, ptr %a4, i64 %.127
  store float %.126, ptr %.128, align 4
  %.129 = add nuw nsw i64 %.12, 1
  br label %"inner.head"
"inner.exit":
  %.130 = add nuw nsw i64 %.10, 1
  br label %"outer.head"
}
define void @"loop_nest_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = getelementptr i64, ptr %a0, i64 0
  %.2 = load ptr, ptr %.1
  %.3 = getelementptr i64, ptr %a0, i64 1
  %.4 = load ptr, ptr %.3
  call void @"body"(i64 %a1, i64 %a2, ptr %a0, ptr %.2, ptr %.4)
  ret void
}
