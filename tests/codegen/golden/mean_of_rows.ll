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
  %".36" = sitofp i64 6 to float
  br label %"outer.head"
outer.head:
  %".15" = phi  i64 [%".44", %"inner.exit"], [%".11", %"work"]
  %".16" = icmp ult i64 %".15", %".14"
  br i1 %".16", label %"outer.body", label %"outer.exit"
outer.body:
  %".21" = mul nsw i64 %".15", 6
  br label %"k1.head"
outer.exit:
  ret void
inner.head:
  %".18" = phi  i64 [%".41", %"inner.body"], [0, %"k1.exit"]
  %".19" = icmp ult i64 %".18", 6
  br i1 %".19", label %"inner.body", label %"inner.exit"
inner.body:
  %".22" = add nsw i64 %".21", %".18"
  %".23" = getelementptr float, ptr %".4", i64 %".22"
  %".24" = load float, ptr %".23", align 4
  %".38" = fsub contract nsz float %".24", %".37"
  %".39" = getelementptr float, ptr %".5", i64 %".22"
  store float %".38", ptr %".39", align 4
  %".41" = add nuw nsw i64 %".18", 1
  br label %"inner.head"
inner.exit:
  %".44" = add nuw nsw i64 %".15", 1
  br label %"outer.head"
k1.head:
  %".25" = phi  i64 [%".33", %"k1.body"], [0, %"outer.body"]
  %".26" = phi  float [%".32", %"k1.body"], [             0x0, %"outer.body"]
  %".27" = icmp ult i64 %".25", 6
  br i1 %".27", label %"k1.body", label %"k1.exit"
k1.body:
  %".29" = add nsw i64 %".21", %".25"
  %".30" = getelementptr float, ptr %".4", i64 %".29"
  %".31" = load float, ptr %".30", align 4
  %".32" = fadd reassoc contract nsz float %".26", %".31"
  %".33" = add nuw nsw i64 %".25", 1
  br label %"k1.head"
k1.exit:
  %".37" = fdiv nsz float %".26", %".36"
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
