package flight

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Table returns the record as text: first the collectives that are not done or have failed, or in which ranks disagree, marked with "!", then
// the others, each newest first; then how late the ranks were. Ranks with the same call and state share a line.
func (r *Record) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "flight record of %s", counted(len(r.Ranks), "rank"))
	if len(r.Processes) > 1 {
		fmt.Fprintf(&b, " in %d processes", len(r.Processes))
	}
	fmt.Fprintf(&b, ", %s\n", clock(r.Time, "2006-01-02 15:04:05.000"))
	for _, p := range r.Processes {
		if p.Missing != "" {
			fmt.Fprintf(&b, "! process %d (%s) is missing: %s\n", p.Process, Ranks(p.Ranks), p.Missing)
		}
		for _, f := range p.Faults {
			fmt.Fprintf(&b, "! process %d, %s: %s\n", p.Process, clock(f.Time, "15:04:05.000"), f.Error)
		}
	}
	if len(r.Operations) == 0 {
		return b.String() + "no operations\n"
	}
	lines := [][]string{{"", "called", "group", "#", "operation", "bytes", "state", "time", "ranks"}}
	rounds := r.rounds()
	for _, troubled := range []bool{true, false} {
		for _, x := range rounds {
			if disagree := x.disagree(); troubled == (disagree || !x.over()) {
				lines = append(lines, x.lines(r.Time, disagree)...)
			}
		}
	}
	writeColumns(&b, lines, 3, 5, 7)
	r.writeLateness(&b)
	return b.String()
}

// lines describes a collective: a line for each call and state.
func (x *round) lines(now int64, disagree bool) (lines [][]string) {
	type line struct {
		*Operation
		ranks []int
		age   time.Duration
	}
	var list []line
	for _, o := range x.calls {
		i := slices.IndexFunc(list, func(l line) bool {
			return l.State == o.State && l.Error == o.Error && l.agrees(o) && l.sameTensors(o) && l.Heard == o.Heard
		})
		if i < 0 {
			i = len(list)
			list = append(list, line{Operation: o})
		}
		list[i].ranks = append(list[i].ranks, o.Rank)
		list[i].age = max(list[i].age, o.age(now))
	}
	name := x.group.Name
	mark := ""
	if disagree || !x.over() {
		mark = "!"
	}
	for i, l := range list {
		seq, called := "", ""
		if i == 0 {
			called = clock(x.called(), "15:04:05.000")
			if x.seq > 0 {
				seq = fmt.Sprint(x.seq)
			}
		}
		ranks := Ranks(l.ranks)
		if l.Heard {
			ranks += " (heard by another process)"
		}
		lines = append(lines, []string{mark, called, name, seq, l.Call(), size(l.Bytes), l.State, short(l.age), ranks})
		if l.Error != "" {
			lines = append(lines, []string{mark, "", "", "", "  " + l.Error})
		}
		name = ""
	}
	if len(x.absent) > 0 && !x.over() {
		lines = append(lines, []string{mark, "", "", "", "not called", "", "", "", Ranks(x.absent)})
	}
	return lines
}

// writeLateness writes who came last how often.
func (r *Record) writeLateness(b *strings.Builder) {
	lines := [][]string{{"rank", "collectives", "last", "mean wait", "mean lateness"}}
	for _, k := range r.Ranks {
		if k.Collectives > 0 {
			share := fmt.Sprintf("%d (%.0f%%)", k.Last, 100*float64(k.Last)/float64(k.Collectives))
			lines = append(lines, []string{fmt.Sprint(k.Rank), fmt.Sprint(k.Collectives), share, short(time.Duration(k.Wait)), short(time.Duration(k.Late))})
		}
	}
	if len(lines) > 1 {
		b.WriteString("\nwho waited, and who came late (behind the median of the ranks)\n")
		writeColumns(b, lines, 0, 1, 2, 3, 4)
	}
}

// writeColumns writes lines in columns. Those in right are aligned to the right. A line's last cell may be as long as it likes.
func writeColumns(b *strings.Builder, lines [][]string, right ...int) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, c := range line {
			if i < len(line)-1 || len(line) == len(widths) {
				widths[i] = max(widths[i], utf8.RuneCountInString(c))
			}
		}
	}
	for _, line := range lines {
		var row strings.Builder
		for i, c := range line {
			if i > 0 {
				row.WriteString("  ")
			}
			pad := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(c), 0))
			if slices.Contains(right, i) {
				row.WriteString(pad + c)
			} else {
				row.WriteString(c + pad)
			}
		}
		b.WriteString(strings.TrimRight(row.String(), " "))
		b.WriteString("\n")
	}
}

// Ranks lists ranks, such as "rank 2" or "ranks 0-3, 5".
func Ranks(ranks []int) string {
	ranks = slices.Sorted(slices.Values(ranks))
	if len(ranks) == 0 {
		return "no rank"
	}
	var parts []string
	for i := 0; i < len(ranks); {
		k := i
		for k+1 < len(ranks) && ranks[k+1] == ranks[k]+1 {
			k++
		}
		if k > i+1 {
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[k]))
		} else {
			for _, r := range ranks[i : k+1] {
				parts = append(parts, fmt.Sprint(r))
			}
		}
		i = k + 1
	}
	if len(ranks) == 1 {
		return "rank " + parts[0]
	}
	return "ranks " + strings.Join(parts, ", ")
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func clock(t int64, layout string) string { return time.Unix(0, t).Format(layout) }

// short rounds a duration to three digits or so.
func short(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return d.String()
	case d < time.Millisecond:
		return d.Round(100 * time.Nanosecond).String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// size writes bytes with a unit.
func size(n int) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if u := 1 << (30 - 10*i); n >= u {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u), unit)
		}
	}
	return fmt.Sprintf("%d B", n)
}
