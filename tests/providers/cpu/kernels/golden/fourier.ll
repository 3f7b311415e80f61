; --- fourier_HASH, effort all; not shown: radix4, radix3, radix5, radix_other, productsbefore, productsbehind, fourier
define internal void @"radix2"(ptr %a0, ptr %a1, i64 %a2, i64 %a3, ptr %a4) noinline nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = mul i64 %a3, 64
  %.2 = mul i64 %a2, %.1
  %.3 = mul i64 0, 8
  %.4 = getelementptr i8, ptr %a4, i64 %.3
  %.5 = mul i64 0, %.1
  %.6 = getelementptr i8, ptr %a0, i64 %.5
  %.7 = mul i64 0, 2
  %.8 = mul i64 %.7, %.1
  %.9 = getelementptr i8, ptr %a1, i64 %.8
  %.10 = icmp slt i64 0, %.1
  br i1 %.10, label %"loop", label %"after"
"loop":
  %.11 = phi i64 [0, %"entry"], [%.34, %"loop"]
  %.12 = mul i64 %.2, 0
  %.13 = getelementptr i8, ptr %.6, i64 %.12
  %.14 = getelementptr i8, ptr %.13, i64 %.11
  %.15 = load <8 x float>, ptr %.14, align 4
  %.16 = getelementptr i8, ptr %.14, i64 32
  %.17 = load <8 x float>, ptr %.16, align 4
  %.18 = getelementptr i8, ptr %.6, i64 %.2
  %.19 = getelementptr i8, ptr %.18, i64 %.11
  %.20 = load <8 x float>, ptr %.19, align 4
  %.21 = getelementptr i8, ptr %.19, i64 32
  %.22 = load <8 x float>, ptr %.21, align 4
  %.23 = fadd <8 x float> %.15, %.20
  %.24 = fadd <8 x float> %.17, %.22
  %.25 = fsub <8 x float> %.15, %.20
  %.26 = fsub <8 x float> %.17, %.22
  %.27 = mul i64 %.1, 0
  %.28 = getelementptr i8, ptr %.9, i64 %.27
  %.29 = getelementptr i8, ptr %.28, i64 %.11
  store <8 x float> %.23, ptr %.29, align 4
  %.30 = getelementptr i8, ptr %.29, i64 32
  store <8 x float> %.24, ptr %.30, align 4
  %.31 = getelementptr i8, ptr %.9, i64 %.1
  %.32 = getelementptr i8, ptr %.31, i64 %.11
  store <8 x float> %.25, ptr %.32, align 4
  %.33 = getelementptr i8, ptr %.32, i64 32
  store <8 x float> %.26, ptr %.33, align 4
  %.34 = add i64 %.11, 64
  %.35 = icmp slt i64 %.34, %.1
  br i1 %.35, label %"loop", label %"after", !llvm.loop !2
"after":
  %.36 = icmp slt i64 1, %a2
  br i1 %.36, label %"loop.1", label %"after.1"
"loop.1":
  %.37 = phi i64 [1, %"after"], [%.83, %"after.2"]
  %.38 = mul i64 %.37, 8
  %.39 = getelementptr i8, ptr %a4, i64 %.38
  %.40 = load float, ptr %.39, align 4
  %.41 = insertelement <8 x float> poison, float %.40, i32 0
  %.42 = shufflevector <8 x float> %.41, <8 x float> poison, <8 x i32> zeroinitializer
  %.43 = getelementptr i8, ptr %.39, i64 4
  %.44 = load float, ptr %.43, align 4
  %.45 = insertelement <8 x float> poison, float %.44, i32 0
  %.46 = shufflevector <8 x float> %.45, <8 x float> poison, <8 x i32> zeroinitializer
  %.47 = mul i64 %.37, %.1
  %.48 = getelementptr i8, ptr %a0, i64 %.47
  %.49 = mul i64 %.37, 2
  %.50 = mul i64 %.49, %.1
  %.51 = getelementptr i8, ptr %a1, i64 %.50
  %.52 = icmp slt i64 0, %.1
  br i1 %.52, label %"loop.2", label %"after.2"
"after.1":
  ret void
"loop.2":
  %.53 = phi i64 [0, %"loop.1"], [%.81, %"loop.2"]
  %.54 = mul i64 %.2, 0
  %.55 = getelementptr i8, ptr %.48, i64 %.54
  %.56 = getelementptr i8, ptr %.55, i64 %.53
  %.57 = load <8 x float>, ptr %.56, align 4
  %.58 = getelementptr i8, ptr %.56, i64 32
  %.59 = load <8 x float>, ptr %.58, align 4
  %.60 = getelementptr i8, ptr %.48, i64 %.2
  %.61 = getelementptr i8, ptr %.60, i64 %.53
  %.62 = load <8 x float>, ptr %.61, align 4
  %.63 = getelementptr i8, ptr %.61, i64 32
  %.64 = load <8 x float>, ptr %.63, align 4
  %.65 = fadd <8 x float> %.57, %.62
  %.66 = fadd <8 x float> %.59, %.64
  %.67 = fsub <8 x float> %.57, %.62
  %.68 = fsub <8 x float> %.59, %.64
  %.69 = mul i64 %.1, 0
  %.70 = getelementptr i8, ptr %.51, i64 %.69
  %.71 = getelementptr i8, ptr %.70, i64 %.53
  store <8 x float> %.65, ptr %.71, align 4
  %.72 = getelementptr i8, ptr %.71, i64 32
  store <8 x float> %.66, ptr %.72, align 4
  %.73 = fmul <8 x float> %.68, %.46
  %.74 = fneg <8 x float> %.73
  %.75 = fmul <8 x float> %.68, %.42
  %.76 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.67, <8 x float> %.42, <8 x float> %.74)
  %.77 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.67, <8 x float> %.46, <8 x float> %.75)
  %.78 = getelementptr i8, ptr %.51, i64 %.1
  %.79 = getelementptr i8, ptr %.78, i64 %.53
  store <8 x float> %.76, ptr %.79, align 4
  %.80 = getelementptr i8, ptr %.79, i64 32
  store <8 x float> %.77, ptr %.80, align 4
  %.81 = add i64 %.53, 64
  %.82 = icmp slt i64 %.81, %.1
  br i1 %.82, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.83 = add i64 %.37, 1
  %.84 = icmp slt i64 %.83, %a2
  br i1 %.84, label %"loop.1", label %"after.1", !llvm.loop !2
}
define internal void @"products"(ptr %a0, ptr %a1, i64 %a2) noinline nounwind "prefer-vector-width"="256"
{
"entry":
  %.1 = icmp slt i64 0, %a2
  br i1 %.1, label %"loop", label %"after"
"loop":
  %.2 = phi i64 [0, %"entry"], [%.23, %"loop"]
  %.3 = mul i64 %.2, 64
  %.4 = getelementptr i8, ptr %a0, i64 %.3
  %.5 = load <8 x float>, ptr %.4, align 4
  %.6 = getelementptr i8, ptr %.4, i64 32
  %.7 = load <8 x float>, ptr %.6, align 4
  %.8 = mul i64 %.2, 8
  %.9 = getelementptr i8, ptr %a1, i64 %.8
  %.10 = load float, ptr %.9, align 4
  %.11 = insertelement <8 x float> poison, float %.10, i32 0
  %.12 = shufflevector <8 x float> %.11, <8 x float> poison, <8 x i32> zeroinitializer
  %.13 = getelementptr i8, ptr %.9, i64 4
  %.14 = load float, ptr %.13, align 4
  %.15 = insertelement <8 x float> poison, float %.14, i32 0
  %.16 = shufflevector <8 x float> %.15, <8 x float> poison, <8 x i32> zeroinitializer
  %.17 = fmul <8 x float> %.7, %.16
  %.18 = fneg <8 x float> %.17
  %.19 = fmul <8 x float> %.7, %.12
  %.20 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.5, <8 x float> %.12, <8 x float> %.18)
  %.21 = call <8 x float> @"llvm.fmuladd.v8f32"(<8 x float> %.5, <8 x float> %.16, <8 x float> %.19)
  store <8 x float> %.20, ptr %.4, align 4
  %.22 = getelementptr i8, ptr %.4, i64 32
  store <8 x float> %.21, ptr %.22, align 4
  %.23 = add i64 %.2, 1
  %.24 = icmp slt i64 %.23, %a2
  br i1 %.24, label %"loop", label %"after", !llvm.loop !2
"after":
  ret void
}
