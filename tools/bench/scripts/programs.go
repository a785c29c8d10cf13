package scripts

// The programs. Each has a value, so that nothing is left out for not being needed.
const (
	tiny      = "return 1 + 1"
	oneCall   = "return await tools.a.b({x: 1})"
	manyCalls = "let n = 0; for (let i = 0; i < 100; i++) { n += (await tools.a.b({x: i})).x } return n"
	transform = `const items = []; for (let i = 0; i < 1000; i++) items.push({id: i, name: "item " + i, tags: ["a", "b"], price: i * 1.5});
const text = JSON.stringify(items); const read = JSON.parse(text);
return read.filter((x) => x.id % 3 === 0).map((x) => ({...x, price: x.price * 2})).sort((a, b) => b.price - a.price).slice(0, 10)`
)

// callsOf is how many calls manyCalls makes.
const callsOf = 100
