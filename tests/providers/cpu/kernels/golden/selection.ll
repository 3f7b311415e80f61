; --- compress_HASH, effort all
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"compress_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
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
  %.11 = getelementptr i8, ptr %a0, i64 32
  %.12 = load i64, ptr %.11
  %.13 = getelementptr i8, ptr %a0, i64 40
  %.14 = load i64, ptr %.13
  %.15 = getelementptr i8, ptr %a0, i64 48
  %.16 = load i64, ptr %.15
  %.17 = getelementptr i8, ptr %a0, i64 56
  %.18 = load i64, ptr %.17
  %.19 = mul i64 %.10, %a1
  %.20 = udiv i64 %.19, %a2
  %.21 = add i64 %a1, 1
  %.22 = mul i64 %.10, %.21
  %.23 = udiv i64 %.22, %a2
  %.24 = icmp slt i64 %.20, %.23
  br i1 %.24, label %"loop", label %"after"
"loop":
  %.25 = phi i64 [%.20, %"entry"], [%.77, %"after.2"]
  %.26 = mul i64 %.25, %.14
  %.27 = getelementptr i8, ptr %.2, i64 %.26
  %.28 = mul i64 %.25, %.18
  %.29 = getelementptr i8, ptr %.8, i64 %.28
  %.30 = urem i64 %.12, 8
  %.31 = sub i64 %.12, %.30
  %.32 = icmp slt i64 0, %.31
  br i1 %.32, label %"loop.1", label %"after.1"
"after":
  ret void
"loop.1":
  %.33 = phi i64 [0, %"loop"], [%.47, %"loop.1"]
  %.34 = phi i64 [0, %"loop"], [%.46, %"loop.1"]
  %.35 = getelementptr i8, ptr %.5, i64 %.33
  %.36 = mul i64 %.33, 4
  %.37 = getelementptr i8, ptr %.27, i64 %.36
  %.38 = load <8 x i8>, ptr %.35, align 1
  %.39 = load <8 x i32>, ptr %.37, align 4
  %.40 = icmp ne <8 x i8> %.38, zeroinitializer
  %.41 = mul i64 %.34, 4
  %.42 = getelementptr i8, ptr %.29, i64 %.41
  %.43 = bitcast <8 x i1> %.40 to i8
  %.44 = zext i8 %.43 to i64
  %.45 = call i64 @"llvm.ctpop.i64"(i64 %.44)
  call void @"llvm.masked.compressstore.v8i32"(<8 x i32> %.39, ptr %.42, <8 x i1> %.40)
  %.46 = add i64 %.34, %.45
  %.47 = add i64 %.33, 8
  %.48 = icmp slt i64 %.47, %.31
  br i1 %.48, label %"loop.1", label %"after.1", !llvm.loop !2
"after.1":
  %.49 = phi i64 [0, %"loop"], [%.46, %"loop.1"]
  %.50 = icmp slt i64 %.31, %.12
  br i1 %.50, label %"loop.2", label %"after.2"
"loop.2":
  %.51 = phi i64 [%.31, %"after.1"], [%.74, %"loop.2"]
  %.52 = phi i64 [%.49, %"after.1"], [%.73, %"loop.2"]
  %.53 = sub i64 %.12, %.51
  %.54 = icmp slt i64 %.53, 0
  %.55 = select i1 %.54, i64 0, i64 %.53
  %.56 = icmp slt i64 %.55, 8
  %.57 = select i1 %.56, i64 %.55, i64 8
  %.58 = trunc i64 %.57 to i32
  %.59 = insertelement <8 x i32> poison, i32 %.58, i32 0
  %.60 = shufflevector <8 x i32> %.59, <8 x i32> poison, <8 x i32> zeroinitializer
  %.61 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.60
  %.62 = getelementptr i8, ptr %.5, i64 %.51
  %.63 = mul i64 %.51, 4
  %.64 = getelementptr i8, ptr %.27, i64 %.63
  %.65 = call <8 x i8> @"llvm.masked.load.v8i8.p0"(ptr %.62, i32 1, <8 x i1> %.61, <8 x i8> zeroinitializer)
  %.66 = call <8 x i32> @"llvm.masked.load.v8i32.p0"(ptr %.64, i32 4, <8 x i1> %.61, <8 x i32> zeroinitializer)
  %.67 = icmp ne <8 x i8> %.65, zeroinitializer
  %.68 = mul i64 %.52, 4
  %.69 = getelementptr i8, ptr %.29, i64 %.68
  %.70 = bitcast <8 x i1> %.67 to i8
  %.71 = zext i8 %.70 to i64
  %.72 = call i64 @"llvm.ctpop.i64"(i64 %.71)
  call void @"llvm.masked.compressstore.v8i32"(<8 x i32> %.66, ptr %.69, <8 x i1> %.67)
  %.73 = add i64 %.52, %.72
  %.74 = add i64 %.51, 8
  %.75 = icmp slt i64 %.74, %.12
  br i1 %.75, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.76 = phi i64 [%.49, %"after.1"], [%.73, %"loop.2"]
  %.77 = add i64 %.25, 1
  %.78 = icmp slt i64 %.77, %.23
  br i1 %.78, label %"loop", label %"after", !llvm.loop !2
}
declare i64 @"llvm.ctpop.i64"(i64)
declare void @"llvm.masked.compressstore.v8i32"(<8 x i32>, ptr, <8 x i1>)
declare <8 x i8> @"llvm.masked.load.v8i8.p0"(ptr, i32, <8 x i1>, <8 x i8>)
declare <8 x i32> @"llvm.masked.load.v8i32.p0"(ptr, i32, <8 x i1>, <8 x i32>)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
