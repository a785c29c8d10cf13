package executor

import (
	"strings"
	"testing"
)

// An answer reaches the question that it is to, the first counts, and what is no answer reaches nobody.
func TestAnswers(t *testing.T) {
	var q questions
	got, forget := q.wait(question{"tnt_a", "call_1", 2})
	for name, raw := range map[string]string{
		"no JSON":          `{`,
		"nothing":          `{"ask":2}`,
		"another question": `{"ask":1,"result":{}}`,
		"no number":        `{"result":{}}`,
		"too large":        `{"ask":2,"result":"` + strings.Repeat("x", MaxAnswer) + `"}`,
	} {
		if q.take("tnt_a", "call_1", []byte(raw)); len(got) != 0 {
			t.Fatalf("%s was taken", name)
		}
	}
	q.take("tnt_b", "call_1", []byte(`{"ask":2,"result":{}}`))
	q.take("tnt_a", "call_2", []byte(`{"ask":2,"result":{}}`))
	if len(got) != 0 {
		t.Fatal("the answer to another's was taken")
	}
	q.take("tnt_a", "call_1", []byte(`{"ask":2,"result":{"n":1}}`))
	q.take("tnt_a", "call_1", []byte(`{"ask":2,"result":{"n":2}}`)) // and waits for nobody
	if a := <-got; string(a.Result) != `{"n":1}` || a.Problem != nil {
		t.Errorf("%+v", a)
	}
	forget()
	if q.take("tnt_a", "call_1", []byte(`{"ask":2,"result":{}}`)); len(got) != 0 || len(q.waiting) != 0 {
		t.Error("a question that is over was answered")
	}
}
