; --- trees_combine_HASH, effort all
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"trees_combine_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = load i64, ptr %a0
  %.2 = inttoptr i64 %.1 to ptr
  %.3 = getelementptr i8, ptr %a0, i64 8
  %.4 = load i64, ptr %.3
  %.5 = inttoptr i64 %.4 to ptr
  %.6 = getelementptr i8, ptr %a0, i64 16
  %.7 = load i64, ptr %.6
  %.8 = getelementptr i8, ptr %a0, i64 24
  %.9 = load i64, ptr %.8
  %.10 = icmp eq i64 %.9, 1
  %.11 = select i1 %.10, i64 0, i64 %.7
  %.12 = mul i64 %.11, %a1
  %.13 = udiv i64 %.12, %a2
  %.14 = add i64 %a1, 1
  %.15 = mul i64 %.11, %.14
  %.16 = udiv i64 %.15, %a2
  %.17 = icmp slt i64 %.13, %.16
  %.19 = alloca double
  br i1 %.17, label %"loop", label %"after"
"loop":
  %.18 = phi i64 [%.13, %"entry"], [%.34, %"after.1"]
  store double 0x0000000000000000, ptr %.19
  %.20 = icmp slt i64 0, %.9
  br i1 %.20, label %"loop.1", label %"after.1"
"after":
  ret void
"loop.1":
  %.21 = phi i64 [0, %"loop"], [%.29, %"loop.1"]
  %.22 = mul i64 %.21, %.7
  %.23 = add i64 %.22, %.18
  %.24 = mul i64 %.23, 8
  %.25 = getelementptr i8, ptr %.2, i64 %.24
  %.26 = load double, ptr %.25, align 8
  %.27 = load double, ptr %.19
  %.28 = fadd double %.27, %.26
  store double %.28, ptr %.19
  %.29 = add i64 %.21, 1
  %.30 = icmp slt i64 %.29, %.9
  br i1 %.30, label %"loop.1", label %"after.1", !llvm.loop !2
"after.1":
  %.31 = load double, ptr %.19
  %.32 = mul i64 %.18, 8
  %.33 = getelementptr i8, ptr %.5, i64 %.32
  store double %.31, ptr %.33, align 8
  %.34 = add i64 %.18, 1
  %.35 = icmp slt i64 %.34, %.16
  br i1 %.35, label %"loop", label %"after", !llvm.loop !2
}
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
