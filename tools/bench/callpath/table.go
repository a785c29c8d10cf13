package callpath

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WriteTable writes the report for people.
func (r Report) WriteTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "transport\tsync\tcallers\tway\tcalls\tp50 ms\tp99 ms\tcalls/s\tp50 / bare\tbare rate / rate\tp50 - direct\tdirect rate / rate\t")
	var last Setting
	for i, p := range r.Paths {
		if i > 0 && p.Setting != last {
			fmt.Fprintln(w, "\t\t\t\t\t\t\t\t\t\t\t\t")
		}
		last = p.Setting
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t%.0f\t%s\t%s\t%s\t%s\t\n", p.Transport, p.Sync, p.Callers, p.Way, p.Calls,
			ms(p.P50), ms(p.P99), p.Rate, times(p.BareP50), times(p.BareRate), msOrNone(p.DirectP50), times(p.DirectRate))
	}
	if err := w.Flush(); err != nil || len(r.Revokes) == 0 {
		return err
	}
	fmt.Fprint(out, "\nrevoke to the last call in flight cancelled, its outcome stored\n\n")
	fmt.Fprintln(w, "transport\tsync\tin flight\trevokes\tp50 ms\tp99 ms\t")
	for _, v := range r.Revokes {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t\n", v.Transport, v.Sync, v.InFlight, v.Revokes, ms(v.P50), ms(v.P99))
	}
	return w.Flush()
}

func ms(m Micros) string { return fmt.Sprintf("%.2f", time.Duration(m).Seconds()*1000) }

func msOrNone(m Micros) string {
	if m == 0 {
		return ""
	}
	return ms(m)
}

func times(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", ratio)
}
