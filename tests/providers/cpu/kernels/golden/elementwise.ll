; --- elementwise_HASH, effort all
; ModuleID = "kernel"
define internal void @"body"(i64 %a0, i64 %a1, ptr %a2, ptr noalias %a3, ptr noalias %a4, ptr noalias %a5) noinline nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = getelementptr i64, ptr %a2, i64 3
  %.2 = load i64, ptr %.1
  %.3 = getelementptr i64, ptr %a2, i64 4
  %.4 = load i64, ptr %.3
  %.12 = icmp eq i64 %.2, 0
  %.13 = select i1 %.12, i64 1, i64 %.2
  %.14 = icmp eq i64 %.4, 0
  %.15 = select i1 %.14, i64 1, i64 %.4
  %.23 = getelementptr i64, ptr %a2, i64 5
  %.24 = load i64, ptr %.23
  br label %"work"
"work":
  %.5 = mul i64 %.2, 1
  %.6 = mul i64 %.5, %.4
  %.7 = mul i64 %.6, %a0
  %.8 = udiv i64 %.7, %a1
  %.9 = add i64 %a0, 1
  %.10 = mul i64 %.6, %.9
  %.11 = udiv i64 %.10, %a1
  %.16 = urem i64 %.8, %.15
  %.17 = udiv i64 %.8, %.15
  br label %"outer.head"
"outer.head":
  %.18 = phi i64 [%.46, %"inner.exit"], [%.8, %"work"]
  %.19 = phi i64 [%.45, %"inner.exit"], [%.17, %"work"]
  %.20 = phi i64 [%.43, %"inner.exit"], [%.16, %"work"]
  %.21 = icmp ult i64 %.18, %.11
  br i1 %.21, label %"outer.body", label %"outer.exit"
"outer.body":
  %.22 = mul i64 %.20, 4096
  %.25 = add i64 %.22, 4096
  %.26 = icmp ult i64 %.25, %.24
  %.27 = select i1 %.26, i64 %.25, i64 %.24
  %.30 = mul nsw i64 %.19, %.24
  br label %"inner.head"
"outer.exit":
  ret void
"inner.head":
  %.28 = phi i64 [%.40, %"inner.body"], [%.22, %"outer.body"]
  %.29 = icmp ult i64 %.28, %.27
  br i1 %.29, label %"inner.body", label %"inner.exit"
"inner.body":
  %.31 = add nsw i64 %.30, %.28
  %.32 = getelementptr float, ptr %a3, i64 %.31
  %.33 = load float, ptr %.32, align 4
  %.34 = getelementptr float, ptr %a4, i64 %.28
  %.35 = load float, ptr %.34, align 4
  %.36 = fadd contract nsz float %.33, %.35
  %.37 = fcmp ogt float 0x0000000000000000, %.36
  %.38 = select i1 %.37, float 0x0000000000000000, float %.36
  %.39 = getelementptr float, ptr %a5, i64 %.31
  store float %.38, ptr %.39, align 4
  %.40 = add nuw nsw i64 %.28, 1
  br label %"inner.head"
"inner.exit":
  %.41 = add i64 %.20, 1
  %.42 = icmp eq i64 %.41, %.15
  %.43 = select i1 %.42, i64 0, i64 %.41
  %.44 = zext i1 %.42 to i64
  %.45 = add i64 %.19, %.44
  %.46 = add nuw nsw i64 %.18, 1
  br label %"outer.head"
}
define void @"elementwise_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = getelementptr i64, ptr %a0, i64 0
  %.2 = load ptr, ptr %.1
  %.3 = getelementptr i64, ptr %a0, i64 1
  %.4 = load ptr, ptr %.3
  %.5 = getelementptr i64, ptr %a0, i64 2
  %.6 = load ptr, ptr %.5
  call void @"body"(i64 %a1, i64 %a2, ptr %a0, ptr %.2, ptr %.4, ptr %.6)
  ret void
}
