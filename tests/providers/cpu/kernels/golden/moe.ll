; --- experts_HASH, effort all
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"experts_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
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
  %.10 = getelementptr i8, ptr %a0, i64 32
  %.11 = load i64, ptr %.10
  %.12 = getelementptr i8, ptr %a0, i64 40
  %.13 = alloca [304 x i8], align 64
  %.14 = icmp slt i64 0, %.7
  br i1 %.14, label %"loop", label %"after"
"loop":
  %.15 = phi i64 [0, %"entry"], [%.65, %"endif"]
  %.16 = mul i64 %.15, 8
  %.17 = getelementptr i8, ptr %.5, i64 %.16
  %.18 = load i64, ptr %.17
  %.19 = add i64 %.15, 1
  %.20 = mul i64 %.19, 8
  %.21 = getelementptr i8, ptr %.5, i64 %.20
  %.22 = load i64, ptr %.21
  %.23 = sub i64 %.22, %.18
  %.24 = icmp slt i64 0, %.23
  br i1 %.24, label %"then", label %"endif"
"after":
  ret void
"then":
  call void @"llvm.memcpy.p0.p0.i64"(ptr %.13, ptr %.12, i64 304, i1 0)
  %.25 = getelementptr i8, ptr %.12, i64 16
  %.26 = load i64, ptr %.25
  %.27 = mul i64 %.18, %.26
  %.28 = getelementptr i8, ptr %.12, i64 8
  %.29 = load i64, ptr %.28
  %.30 = add i64 %.29, %.27
  %.31 = getelementptr i8, ptr %.13, i64 8
  store i64 %.30, ptr %.31
  %.32 = getelementptr i8, ptr %.12, i64 48
  %.33 = load i64, ptr %.32
  %.34 = mul i64 %.18, %.33
  %.35 = getelementptr i8, ptr %.12, i64 40
  %.36 = load i64, ptr %.35
  %.37 = add i64 %.36, %.34
  %.38 = getelementptr i8, ptr %.13, i64 40
  store i64 %.37, ptr %.38
  %.39 = mul i64 %.15, %.9
  %.40 = getelementptr i8, ptr %.12, i64 24
  %.41 = load i64, ptr %.40
  %.42 = add i64 %.41, %.39
  %.43 = getelementptr i8, ptr %.13, i64 24
  store i64 %.42, ptr %.43
  %.44 = add i64 %.23, 5
  %.45 = udiv i64 %.44, 6
  %.46 = getelementptr i8, ptr %.12, i64 16
  %.47 = load i64, ptr %.46
  %.48 = mul i64 %.23, %.47
  %.49 = add i64 %.48, 1048575
  %.50 = udiv i64 %.49, 1048576
  %.51 = icmp slt i64 %.50, 1
  %.52 = select i1 %.51, i64 1, i64 %.50
  %.53 = icmp slt i64 %.45, %.52
  %.54 = select i1 %.53, i64 %.45, i64 %.52
  %.55 = udiv i64 %.23, %.45
  %.56 = urem i64 %.23, %.45
  %.57 = sub i64 %.54, 1
  %.58 = add i64 %.45, %.57
  %.59 = udiv i64 %.58, %.54
  %.60 = getelementptr i8, ptr %.13, i64 56
  store i64 %.23, ptr %.60
  %.61 = getelementptr i8, ptr %.13, i64 208
  store i64 %.45, ptr %.61
  %.62 = getelementptr i8, ptr %.13, i64 216
  store i64 %.55, ptr %.62
  %.63 = getelementptr i8, ptr %.13, i64 224
  store i64 %.56, ptr %.63
  %.64 = getelementptr i8, ptr %.13, i64 232
  store i64 %.59, ptr %.64
  call void %.2(ptr %.13, i64 %a1, i64 %a2)
  br label %"endif"
"endif":
  %.65 = add i64 %.15, 1
  %.66 = icmp slt i64 %.65, %.7
  br i1 %.66, label %"loop", label %"after", !llvm.loop !2
}
declare void @"llvm.memcpy.p0.p0.i64"(ptr, ptr, i64, i1)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
