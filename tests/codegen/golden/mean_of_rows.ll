; ModuleID = "kernel"
define internal void @"body"(i64 %a0, i64 %a1, ptr %a2, ptr noalias %a3, ptr noalias %a4) noinline nounwind "prefer-vector-width"="128"
{
"entry":
  %.1 = getelementptr i64, ptr %a2, i64 2
  %.2 = load i64, ptr %.1
  br label %"work"
"work":
  %.3 = mul i64 %.2, 1
  %.4 = mul i64 %.3, %a0
  %.5 = udiv i64 %.4, %a1
  %.6 = add i64 %a0, 1
  %.7 = mul i64 %.3, %.6
  %.8 = udiv i64 %.7, %a1
  %.25 = sitofp i64 6 to float
  br label %"outer.head"
"outer.head":
  %.9 = phi i64 [%.30, %"inner.exit"], [%.5, %"work"]
  %.10 = icmp ult i64 %.9, %.8
  br i1 %.10, label %"outer.body", label %"outer.exit"
"outer.body":
  %.13 = mul nsw i64 %.9, 6
  br label %"k1.head"
"outer.exit":
  ret void
"inner.head":
  %.11 = phi i64 [%.29, %"inner.body"], [0, %"k1.exit"]
  %.12 = icmp ult i64 %.11, 6
  br i1 %.12, label %"inner.body", label %"inner.exit"
"inner.body":
  %.14 = add nsw i64 %.13, %.11
  %.15 = getelementptr float, ptr %a3, i64 %.14
  %.16 = load float, ptr %.15, align 4
  %.27 = fsub contract nsz float %.16, %.26
  %.28 = getelementptr float, ptr %a4, i64 %.14
  store float %.27, ptr %.28, align 4
  %.29 = add nuw nsw i64 %.11, 1
  br label %"inner.head"
"inner.exit":
  %.30 = add nuw nsw i64 %.9, 1
  br label %"outer.head"
"k1.head":
  %.17 = phi i64 [%.24, %"k1.body"], [0, %"outer.body"]
  %.18 = phi float [%.23, %"k1.body"], [0x0000000000000000, %"outer.body"]
  %.19 = icmp ult i64 %.17, 6
  br i1 %.19, label %"k1.body", label %"k1.exit"
"k1.body":
  %.20 = add nsw i64 %.13, %.17
  %.21 = getelementptr float, ptr %a3, i64 %.20
  %.22 = load float, ptr %.21, align 4
  %.23 = fadd reassoc contract nsz float %.18, %.22
  %.24 = add nuw nsw i64 %.17, 1
  br label %"k1.head"
"k1.exit":
  %.26 = fdiv nsz float %.18, %.25
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
