return [0.1 + 0.2, 1e21, 1e-7, 123456789012345680000, 5e-324, 1.7976931348623157e308]
return [String(-0), `${-0}`, JSON.stringify(-0), Object.is(-0, 0), 1 / -0]
return [(25).toString(36), (255).toString(16), (-7).toString(2), (0.5).toString(2), (1e6).toString(7), (0.1).toString(3)]
return [(1.005).toFixed(2), (1e21).toFixed(2), (0).toFixed(2), (-1.5).toFixed(0), (2.5).toFixed(0), (1.45).toFixed(1), (123.456).toFixed(10)]
return [(123.456).toPrecision(4), (0.000123).toPrecision(2), (1e21).toPrecision(3), (12345).toPrecision(2)]
return [(123456).toExponential(2), (0).toExponential(), (0.00015).toExponential(1)]
return (1e21).toString(7)
return (1).toFixed(101)
return (1).toString(37)
return (1).toPrecision(0)
return [parseInt('12px'), parseInt('0x1f'), parseInt('z', 36), parseInt(''), parseInt('1e3'), parseInt(null), parseInt('  -42abc'), parseInt('101', 2)]
return [parseFloat('1.5e3x'), parseFloat('.5.5'), parseFloat('-.5e-1'), parseFloat('abc'), parseFloat('Infinityx')]
return [Number(''), Number(' 12 '), Number('0b101'), Number('0o17'), Number('1_000'), Number('1e1000'), Number(null), Number(undefined), Number([5]), Number([1, 2]), Number({}), Number(true), Number('0x'), Number(new Date(5))]
return [1_000, 0b11, 0o17, 0xff, .5, 5., 1e3]
return [7 % -3, -7 % 3, 5.5 % 2, -0 % 1, 2 ** -1, (-2) ** 2, 7 / 0, 0 / 0]
return [5 & 3, 5 | 3, 5 ^ 3, ~5, 1 << 31, 1 << 32, -1 >> 1, -1 >>> 0, 2 ** 32 | 0, 1.9 | 0]
return [Math.round(-0.5), Math.round(2.5), Math.round(-2.5), Math.trunc(-1.9), Math.sign(-3), Math.cbrt(27), Math.fround(5.05), Math.clz32(1), Math.imul(0xffffffff, 5)]
return [Math.max(), Math.min(), Math.max(1, NaN), Math.max(...[1, 3, 2]), Math.hypot(3, 4), Math.hypot()]
return [Math.log2(8), Math.log10(1000), Math.log1p(0), Math.expm1(0), Math.atan2(1, -1), Math.sinh(0), Math.PI.toFixed(10)]
return [Number.MAX_SAFE_INTEGER, Number.EPSILON, Number.MIN_VALUE, Number.isInteger(5.0), Number.isSafeInteger(2 ** 53), Number.isNaN('x'), isNaN('x'), isFinite('1')]
return [9007199254740993, 0.1 * 3, 4.35 * 100, 1.1 + 2.2, 100 * 1.1]
return [10n ** 20n, -7n / 2n, -7n % 3n, 5n & 3n, -1n >> 1n, 1n << 64n].map(String)
return [BigInt('0xff'), BigInt(' 12 '), BigInt(true), BigInt.asIntN(8, 255n), BigInt.asUintN(8, -1n)].map(String)
return [1n < 2, 2n == 2, 2n === 2, 0n ? 1 : 2, typeof 1n]
return BigInt(1.5)
return BigInt('1.5')
return 1n + 1
return 1n / 0n
return +1n
return JSON.stringify({a: 1n})
return (123n).toString(16) + (-255n).toString(2)
return [1, '1', 1n, true].map(x => x == 1)
return [null == undefined, null == 0, null >= 0, '' == 0, [] == false, [1] == 1, NaN == NaN, '0' == false]
return [typeof null, typeof undefined, typeof NaN, typeof [], typeof (() => 1), typeof class {}, typeof Symbol()]
return (1234567.891).toLocaleString()
return [(0).toLocaleString(), (-1234.5678).toLocaleString(), (1e21).toLocaleString(), (0.0005).toLocaleString(), NaN.toLocaleString(), Infinity.toLocaleString(), (-0).toLocaleString(), (999.9995).toLocaleString(), (123456789012345680000).toLocaleString()]
return [(1234.5).toLocaleString('en-US', {minimumFractionDigits: 2}), (1.005).toLocaleString('en-US', {maximumFractionDigits: 2}), (1234.5678).toLocaleString('en-US', {maximumFractionDigits: 0}), (2.5).toLocaleString('en-US', {maximumFractionDigits: 0})]
return [(0.256).toLocaleString('en-US', {style: 'percent'}), (0.256).toLocaleString('en-US', {style: 'percent', minimumFractionDigits: 1})]
return [(1234.5).toLocaleString('en-US', {style: 'currency', currency: 'USD'}), (-1234.5).toLocaleString('en-US', {style: 'currency', currency: 'EUR'}), (1234.5).toLocaleString('en-US', {style: 'currency', currency: 'JPY'})]
return (12345.678).toLocaleString('en-US', {useGrouping: false})
return [12345678901234567890n.toLocaleString(), (-5n).toLocaleString('en-US')]
return [1234.5, 'x', null, 9999].toLocaleString()
return (5).toLocaleString('en-US', {minimumIntegerDigits: 2})
return 1e21 | 0
return parseInt('-0')
return -186 * 0
return Number('0x-1')
return parseInt('123456789012345680000')
