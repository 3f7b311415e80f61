; --- multinomial_HASH, effort all
; ModuleID = "kernel"
target triple = "x86_64-unknown-linux-gnu"
define void @"multinomial_HASH"(ptr %a0, i64 %a1, i64 %a2) nounwind "prefer-vector-width"="256"
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
  %.17 = inttoptr i64 %.16 to ptr
  %.18 = add i64 %.12, 8
  %.19 = mul i64 %.18, 8
  %.20 = mul i64 %a1, %.19
  %.21 = getelementptr i8, ptr %.17, i64 %.20
  %.22 = mul i64 %.10, %a1
  %.23 = udiv i64 %.22, %a2
  %.24 = add i64 %a1, 1
  %.25 = mul i64 %.10, %.24
  %.26 = udiv i64 %.25, %a2
  %.27 = icmp slt i64 %.23, %.26
  %.114 = alloca i64
  %.115 = alloca i64
  br i1 %.27, label %"loop", label %"after"
"loop":
  %.28 = phi i64 [%.23, %"entry"], [%.143, %"after.4"]
  %.29 = mul i64 %.28, %.12
  %.30 = mul i64 %.29, 4
  %.31 = getelementptr i8, ptr %.2, i64 %.30
  %.32 = icmp slt i64 0, %.12
  br i1 %.32, label %"loop.1", label %"after.1"
"after":
  ret void
"loop.1":
  %.33 = phi i64 [0, %"loop"], [%.43, %"loop.1"]
  %.34 = phi double [0xfff0000000000000, %"loop"], [%.42, %"loop.1"]
  %.35 = mul i64 %.33, 4
  %.36 = getelementptr i8, ptr %.31, i64 %.35
  %.37 = load float, ptr %.36, align 4
  %.38 = fpext float %.37 to double
  %.39 = mul i64 %.33, 8
  %.40 = getelementptr i8, ptr %.21, i64 %.39
  store double %.38, ptr %.40, align 8
  %.41 = fcmp ogt double %.38, %.34
  %.42 = select i1 %.41, double %.38, double %.34
  %.43 = add i64 %.33, 1
  %.44 = icmp slt i64 %.43, %.12
  br i1 %.44, label %"loop.1", label %"after.1", !llvm.loop !2
"after.1":
  %.45 = phi double [0xfff0000000000000, %"loop"], [%.42, %"loop.1"]
  %.46 = insertelement <8 x double> poison, double %.45, i32 0
  %.47 = shufflevector <8 x double> %.46, <8 x double> poison, <8 x i32> zeroinitializer
  %.48 = icmp slt i64 0, %.12
  br i1 %.48, label %"loop.2", label %"after.2"
"loop.2":
  %.49 = phi i64 [0, %"after.1"], [%.88, %"loop.2"]
  %.50 = mul i64 %.49, 8
  %.51 = getelementptr i8, ptr %.21, i64 %.50
  %.52 = load <8 x double>, ptr %.51, align 8
  %.53 = fsub <8 x double> %.52, %.47
  %.54 = fcmp olt <8 x double> %.53, splat (double 0xc087500000000000)
  %.55 = select <8 x i1> %.54, <8 x double> splat (double 0xc087500000000000), <8 x double> %.53
  %.56 = fcmp ogt <8 x double> %.55, splat (double 0x4086300000000000)
  %.57 = select <8 x i1> %.56, <8 x double> splat (double 0x4086300000000000), <8 x double> %.55
  %.58 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.57, <8 x double> splat (double 0x3ff71547652b82fe), <8 x double> splat (double 0x4338000000000000))
  %.59 = fsub <8 x double> %.58, splat (double 0x4338000000000000)
  %.60 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.59, <8 x double> splat (double 0xbfe62e42fee00000), <8 x double> %.57)
  %.61 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.59, <8 x double> splat (double 0xbdea39ef35793c76), <8 x double> %.60)
  %.62 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> splat (double 0x3de6124613a86d09), <8 x double> %.61, <8 x double> splat (double 0x3e21eed8eff8d898))
  %.63 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.62, <8 x double> %.61, <8 x double> splat (double 0x3e5ae64567f544e4))
  %.64 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.63, <8 x double> %.61, <8 x double> splat (double 0x3e927e4fb7789f5c))
  %.65 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.64, <8 x double> %.61, <8 x double> splat (double 0x3ec71de3a556c734))
  %.66 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.65, <8 x double> %.61, <8 x double> splat (double 0x3efa01a01a01a01a))
  %.67 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.66, <8 x double> %.61, <8 x double> splat (double 0x3f2a01a01a01a01a))
  %.68 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.67, <8 x double> %.61, <8 x double> splat (double 0x3f56c16c16c16c17))
  %.69 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.68, <8 x double> %.61, <8 x double> splat (double 0x3f81111111111111))
  %.70 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.69, <8 x double> %.61, <8 x double> splat (double 0x3fa5555555555555))
  %.71 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.70, <8 x double> %.61, <8 x double> splat (double 0x3fc5555555555555))
  %.72 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.71, <8 x double> %.61, <8 x double> splat (double 0x3fe0000000000000))
  %.73 = bitcast <8 x double> %.58 to <8 x i64>
  %.74 = sub <8 x i64> %.73, splat (i64 4843621399236968448)
  %.75 = fmul <8 x double> %.61, %.61
  %.76 = call <8 x double> @"llvm.fma.v8f64"(<8 x double> %.75, <8 x double> %.72, <8 x double> %.61)
  %.77 = fadd <8 x double> splat (double 0x3ff0000000000000), %.76
  %.78 = ashr <8 x i64> %.74, splat (i64 1)
  %.79 = sub <8 x i64> %.74, %.78
  %.80 = add <8 x i64> %.78, splat (i64 1023)
  %.81 = shl <8 x i64> %.80, splat (i64 52)
  %.82 = bitcast <8 x i64> %.81 to <8 x double>
  %.83 = fmul <8 x double> %.77, %.82
  %.84 = add <8 x i64> %.79, splat (i64 1023)
  %.85 = shl <8 x i64> %.84, splat (i64 52)
  %.86 = bitcast <8 x i64> %.85 to <8 x double>
  %.87 = fmul <8 x double> %.83, %.86
  store <8 x double> %.87, ptr %.51, align 8
  %.88 = add i64 %.49, 8
  %.89 = icmp slt i64 %.88, %.12
  br i1 %.89, label %"loop.2", label %"after.2", !llvm.loop !2
"after.2":
  %.90 = icmp slt i64 0, %.12
  br i1 %.90, label %"loop.3", label %"after.3"
"loop.3":
  %.91 = phi i64 [0, %"after.2"], [%.97, %"loop.3"]
  %.92 = phi double [0x0000000000000000, %"after.2"], [%.96, %"loop.3"]
  %.93 = mul i64 %.91, 8
  %.94 = getelementptr i8, ptr %.21, i64 %.93
  %.95 = load double, ptr %.94, align 8
  %.96 = fadd double %.92, %.95
  store double %.96, ptr %.94, align 8
  %.97 = add i64 %.91, 1
  %.98 = icmp slt i64 %.97, %.12
  br i1 %.98, label %"loop.3", label %"after.3", !llvm.loop !2
"after.3":
  %.99 = phi double [0x0000000000000000, %"after.2"], [%.96, %"loop.3"]
  %.100 = sub i64 %.12, 1
  %.101 = icmp slt i64 %.100, 0
  %.102 = select i1 %.101, i64 0, i64 %.100
  %.103 = mul i64 %.102, 8
  %.104 = getelementptr i8, ptr %.21, i64 %.103
  %.105 = load double, ptr %.104, align 8
  %.106 = icmp slt i64 0, %.14
  br i1 %.106, label %"loop.4", label %"after.4"
"loop.4":
  %.107 = phi i64 [0, %"after.3"], [%.141, %"done"]
  %.108 = mul i64 %.28, %.14
  %.109 = add i64 %.108, %.107
  %.110 = mul i64 %.109, 8
  %.111 = getelementptr i8, ptr %.5, i64 %.110
  %.112 = load double, ptr %.111, align 8
  %.113 = fmul double %.112, %.105
  store i64 0, ptr %.114
  store i64 %.12, ptr %.115
  br label %"while"
"after.4":
  %.143 = add i64 %.28, 1
  %.144 = icmp slt i64 %.143, %.26
  br i1 %.144, label %"loop", label %"after", !llvm.loop !2
"while":
  %.116 = load i64, ptr %.114
  %.117 = load i64, ptr %.115
  %.118 = icmp slt i64 %.116, %.117
  br i1 %.118, label %"do", label %"done"
"do":
  %.119 = load i64, ptr %.114
  %.120 = load i64, ptr %.115
  %.121 = add i64 %.119, %.120
  %.122 = udiv i64 %.121, 2
  %.123 = mul i64 %.122, 8
  %.124 = getelementptr i8, ptr %.21, i64 %.123
  %.125 = load double, ptr %.124, align 8
  %.126 = fcmp ole double %.125, %.113
  %.127 = add i64 %.122, 1
  %.128 = load i64, ptr %.114
  %.129 = select i1 %.126, i64 %.127, i64 %.128
  store i64 %.129, ptr %.114
  %.130 = load i64, ptr %.115
  %.131 = select i1 %.126, i64 %.130, i64 %.122
  store i64 %.131, ptr %.115
  br label %"while", !llvm.loop !2
"done":
  %.132 = load i64, ptr %.114
  %.133 = sub i64 %.12, 1
  %.134 = icmp slt i64 %.132, %.133
  %.135 = select i1 %.134, i64 %.132, i64 %.133
  %.136 = icmp slt i64 %.135, 0
  %.137 = select i1 %.136, i64 0, i64 %.135
  %.138 = trunc i64 %.137 to i32
  %.139 = mul i64 %.109, 4
  %.140 = getelementptr i8, ptr %.8, i64 %.139
  store i32 %.138, ptr %.140, align 4
  %.141 = add i64 %.107, 1
  %.142 = icmp slt i64 %.141, %.14
  br i1 %.142, label %"loop.4", label %"after.4", !llvm.loop !2
}
declare <8 x double> @"llvm.fma.v8f64"(<8 x double>, <8 x double>, <8 x double>)
!0 = !{!"llvm.loop.unroll.disable"}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !0, !1}
