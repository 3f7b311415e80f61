; ModuleID = "kernel"
define internal void @"body"(i64 %a0, i64 %a1, ptr %a2, ptr noalias %a3, ptr noalias %a4) noinline nounwind "prefer-vector-width"="128"
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
  %.26 = sitofp i64 6 to float
  br label %"outer.head"
"outer.head":
  %.10 = phi i64 [%.31, %"inner.exit"], [%.6, %"work"]
  %.11 = icmp ult i64 %.10, %.9
  br i1 %.11, label %"outer.body", label %"outer.exit"
"outer.body":
  %.14 = mul nsw i64 %.10, 6
  br label %"k1.head"
"outer.exit":
  ret void
"inner.head":
  %.12 = phi i64 [%.30, %"inner.body"], [0, %"k1.exit"]
  %.13 = icmp ult i64 %.12, 6
  br i1 %.13, label %"inner.body", label %"inner.exit"
"inner.body":
  %.15 = add nsw i64 %.14, %.12
  %.16 = getelementptr float, ptr %a3, i64 %.15
  %.17 = load float, ptr %.16, align 4
  %.28 = fsub contract nsz float %.17, %.27
  %.29 = getelementptr float, ptr %a4, i64 %.15
  store float %.28, ptr %.29, align 4
  %.30 = add nuw nsw i64 %.12, 1
  br label %"inner.head"
"inner.exit":
  %.31 = add nuw nsw i64 %.10, 1
  br label %"outer.head"
"k1.head":
  %.18 = phi i64 [%.25, %"k1.body"], [0, %"outer.body"]
  %.19 = phi float [%.24, %"k1.body"], [0x0000000000000000, %"outer.body"]
  %.20 = icmp ult i64 %.18, 6
  br i1 %.20, label %"k1.body", label %"k1.exit"
"k1.body":
  %.21 = add nsw i64 %.14, %.18
  %.22 = getelementptr float, ptr %a3, i64 %.21
  %.23 = load float, ptr %.22, align 4
  %.24 = fadd reassoc contract nsz float %.19, %.23
  %.25 = add nuw nsw i64 %.18, 1
  br label %"k1.head"
"k1.exit":
  %.27 = fdiv nsz float %.19, %.26
  br label %"inner.head"
}
define void @"mean"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="128"
{
"entry":
  %.1 = getelementptr i64, ptr %a0, i64 0
  %.2 = load ptr, ptr %.1
  %.3 = getelementptr i64, ptr %a0, i64 1
  %.4 = load ptr, ptr %.3
  call void @"body"(i64 %a1, i64 %a2, ptr %a0, ptr %.2, ptr %.4)
  ret void
}
