; --- unpack_blocks_HASH, effort vectors
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"unpack_blocks_HASH"(ptr %a0, i64 %a1, ptr %a2, i64 %a3) nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = mul i64 %a3, 32
  %.2 = icmp slt i64 0, %a3
  br i1 %.2, label %"loop", label %"after"
"loop":
  %.3 = phi i64 [0, %"entry"], [%.75, %"after.1"]
  %.4 = mul i64 %.3, 32
  %.5 = getelementptr i8, ptr %a0, i64 %.4
  %.6 = mul i64 %.3, 32
  %.7 = getelementptr i8, ptr %a2, i64 %.6
  %.8 = icmp slt i64 0, %a1
  br i1 %.8, label %"loop.1", label %"after.1"
"after":
  ret void
"loop.1":
  %.9 = phi i64 [0, %"loop"], [%.71, %"after.2"]
  %.10 = phi ptr [%.5, %"loop"], [%.69, %"after.2"]
  %.11 = phi ptr [%.7, %"loop"], [%.70, %"after.2"]
  %.12 = load <8 x float>, ptr %.10, align 4
  %.13 = getelementptr i8, ptr %.10, i64 %.1
  %.14 = load <8 x float>, ptr %.13, align 4
  %.15 = mul i64 %.1, 2
  %.16 = getelementptr i8, ptr %.10, i64 %.15
  %.17 = sub i64 %a1, %.9
  %.18 = icmp slt i64 16, %.17
  %.19 = select i1 %.18, i64 16, i64 %.17
  %.20 = add i64 %.19, 7
  %.21 = udiv i64 %.20, 8
  %.22 = icmp slt i64 0, %.21
  br i1 %.22, label %"loop.2", label %"after.2"
"after.1":
  %.73 = phi ptr [%.5, %"loop"], [%.69, %"after.2"]
  %.74 = phi ptr [%.7, %"loop"], [%.70, %"after.2"]
  %.75 = add i64 %.3, 1
  %.76 = icmp slt i64 %.75, %a3
  br i1 %.76, label %"loop", label %"after", !llvm.loop !2
"loop.2":
  %.23 = phi i64 [0, %"loop.1"], [%.67, %"loop.2"]
  %.24 = phi ptr [%.16, %"loop.1"], [%.66, %"loop.2"]
  %.25 = phi ptr [%.11, %"loop.1"], [%.65, %"loop.2"]
  %.26 = load <8 x i32>, ptr %.24, align 4
  %.27 = shl <8 x i32> %.26, splat (i32 28)
  %.28 = ashr <8 x i32> %.27, splat (i32 28)
  %.29 = sitofp <8 x i32> %.28 to <8 x float>
  %.30 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.29, <8 x float> %.12, <8 x float> %.14)
  store <8 x float> %.30, ptr %.25, align 4
  %.31 = getelementptr i8, ptr %.25, i64 %.1
  %.32 = shl <8 x i32> %.26, splat (i32 24)
  %.33 = ashr <8 x i32> %.32, splat (i32 28)
  %.34 = sitofp <8 x i32> %.33 to <8 x float>
  %.35 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.34, <8 x float> %.12, <8 x float> %.14)
  store <8 x float> %.35, ptr %.31, align 4
  %.36 = getelementptr i8, ptr %.31, i64 %.1
  %.37 = shl <8 x i32> %.26, splat (i32 20)
  %.38 = ashr <8 x i32> %.37, splat (i32 28)
  %.39 = sitofp <8 x i32> %.38 to <8 x float>
  %.40 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.39, <8 x float> %.12, <8 x float> %.14)
  store <8 x float> %.40, ptr %.36, align 4
  %.41 = getelementptr i8, ptr %.36, i64 %.1
  %.42 = shl <8 x i32> %.26, splat (i32 16)
  %.43 = ashr <8 x i32> %.42, splat (i32 28)
  %.44 = sitofp <8 x i32> %.43 to <8 x float>
  %.45 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.44, <8 x float> %.12, <8 x float> %.14)
  store <8 x float> %.45, ptr %.41, align 4
  %.46 = getelementptr i8, ptr %.41, i64 %.1
  %.47 = shl <8 x i32> %.26, splat (i32 12)
  %.48 = ashr <8 x i32> %.47, splat (i32 28)
  %.49 = sitofp <8 x i32> %.48 to <8 x float>
  %.50 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.49, <8 x float> %.12, <8 x float> %.14)
  store <8 x float> %.50, ptr %.46, align 4
  %.51 = getelementptr i8, ptr %.46, i64 %.1
  %.52 = shl <8 x i32> %.26, splat (i32 8)
  %.53 = ashr <8 x i32> %.52, splat (i32 28)
  %.54 = sitofp <8 x i32> %.53 to <8 x float>
  %.55 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.54, <8 x float> %.12, <8 x float> %.14)
  store <8 x float> %.55, ptr %.51, align 4
  %.56 = getelementptr i8, ptr %.51, i64 %.1
  %.57 = shl <8 x i32> %.26, splat (i32 4)
  %.58 = ashr <8 x i32> %.57, splat (i32 28)
  %.59 = sitofp <8 x i32> %.58 to <8 x float>
  %.60 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.59, <8 x float> %.12, <8 x float> %.14)
  store <8 x float> %.60, ptr %.56, align 4
  %.61 = getelementptr i8, ptr %.56, i64 %.1
  %.62 = ashr <8 x i32> %.26, splat (i32 28)
  %.63 = sitofp <8 x i32> %.62 to <8 x float>
  %.64 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.63, <8 x float> %.12, <8 x float> %.14)
  store <8 x float> %.64, ptr %.61, align 4
  %.65 = getelementptr i8, ptr %.61, i64 %.1
  %.66 = getelementptr i8, ptr %.24, i64 %.1
  %.67 = add i64 %.23, 1
  %.68 = icmp slt i64 %.67, %.21
  br i1 %.68, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.69 = phi ptr [%.16, %"loop.1"], [%.66, %"loop.2"]
  %.70 = phi ptr [%.11, %"loop.1"], [%.65, %"loop.2"]
  %.71 = add i64 %.9, 16
  %.72 = icmp slt i64 %.71, %a1
  br i1 %.72, label %"loop.1", label %"after.1", !llvm.loop !2
}
declare <8 x float> @"llvm.fmuladd.v8f32"(<8 x float>, <8 x float>, <8 x float>)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
