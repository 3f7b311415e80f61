; ModuleID = "kernel"
target triple = "unknown-unknown-unknown"
target datalayout = ""

define internal void @"body"(i64 %".1", i64 %".2", ptr %".3", ptr noalias %".4", ptr noalias %".5") noinline nounwind "prefer-vector-width"="128"
{
entry:
  %".7" = getelementptr i64, ptr %".3", i64 2
  %".8" = load i64, ptr %".7"
  br label %"work"
work:
  %".9" = mul i64 %".8", 1
  %".10" = mul i64 %".9", %".1"
  %".11" = udiv i64 %".10", %".2"
  %".12" = add i64 %".1", 1
  %".13" = mul i64 %".9", %".12"
  %".14" = udiv i64 %".13", %".2"
  %".37" = sitofp i64 6 to float
  br label %"outer.head"
outer.head:
  %".15" = phi  i64 [%".45", %"inner.exit"], [%".11", %"work"]
  %".16" = icmp ult i64 %".15", %".14"
  br i1 %".16", label %"outer.body", label %"outer.exit"
outer.body:
  %".18" = add i64 0, 4096
  %".22" = mul nsw i64 %".15", 6
  br label %"k1.head"
outer.exit:
  ret void
inner.head:
  %".19" = phi  i64 [%".42", %"inner.body"], [0, %"k1.exit"]
  %".20" = icmp ult i64 %".19", 6
  br i1 %".20", label %"inner.body", label %"inner.exit"
inner.body:
  %".23" = add nsw i64 %".22", %".19"
  %".24" = getelementptr float, ptr %".4", i64 %".23"
  %".25" = load float, ptr %".24", align 4
  %".39" = fsub contract nsz float %".25", %".38"
  %".40" = getelementptr float, ptr %".5", i64 %".23"
  store float %".39", ptr %".40", align 4
  %".42" = add nuw nsw i64 %".19", 1
  br label %"inner.head"
inner.exit:
  %".45" = add nuw nsw i64 %".15", 1
  br label %"outer.head"
k1.head:
  %".26" = phi  i64 [%".34", %"k1.body"], [0, %"outer.body"]
  %".27" = phi  float [%".33", %"k1.body"], [             0x0, %"outer.body"]
  %".28" = icmp ult i64 %".26", 6
  br i1 %".28", label %"k1.body", label %"k1.exit"
k1.body:
  %".30" = add nsw i64 %".22", %".26"
  %".31" = getelementptr float, ptr %".4", i64 %".30"
  %".32" = load float, ptr %".31", align 4
  %".33" = fadd reassoc contract nsz float %".27", %".32"
  %".34" = add nuw nsw i64 %".26", 1
  br label %"k1.head"
k1.exit:
  %".38" = fdiv nsz float %".27", %".37"
  br label %"inner.head"
}

define void @"mean"(ptr %".1", i64 %".2", i64 %".3") nounwind "prefer-vector-width"="128"
{
entry:
  %".5" = getelementptr i64, ptr %".1", i64 0
  %".6" = load ptr, ptr %".5"
  %".7" = getelementptr i64, ptr %".1", i64 1
  %".8" = load ptr, ptr %".7"
  call void @"body"(i64 %".2", i64 %".3", ptr %".1", ptr %".6", ptr %".8")
  ret void
}
