package pipeline

import (
	"fmt"

	"github.com/plait-ml/plait/parallel/timeline"
)

// colors holds two shades for each kind of action. The darker one is for the later stages of a device.
var colors = [...][2]string{
	Forward:    {"#8db8e8", "#5588c4"},
	Backward:   {"#9bd29b", "#5fa55f"},
	InputGrad:  {"#a6dcc9", "#62ae95"},
	WeightGrad: {"#f2d58a", "#cfa845"},
}

// Plot draws timelines as one SVG image, one below the other on the same time scale, each with its total time and bubble. unit is
// the unit of time.
func Plot(unit string, timelines ...*Timeline) string {
	var legend []timeline.Key
	for _, k := range []Kind{Forward, Backward, InputGrad, WeightGrad} {
		legend = append(legend, timeline.Key{Color: colors[k][0], Name: k.description()})
	}
	if unit != "" {
		unit = " " + unit
	}
	charts := make([]timeline.Chart, len(timelines))
	for i, t := range timelines {
		charts[i].Title = fmt.Sprintf("%s: %s%s, bubble %.1f %%", t.Name, short(t.Time), unit, 100*t.Bubble)
		for d, row := range t.Spans {
			r := timeline.Row{Name: fmt.Sprint("device ", d)}
			first := -1
			for _, x := range row {
				if first < 0 || x.Stage < first {
					first = x.Stage
				}
			}
			for _, x := range row {
				r.Spans = append(r.Spans, x.draw(x.Stage > first))
			}
			charts[i].Rows = append(charts[i].Rows, r)
		}
	}
	return timeline.Draw(legend, charts...)
}

// draw returns the span's rectangle.
func (x Span) draw(later bool) timeline.Span {
	shade := 0
	if later {
		shade = 1
	}
	return timeline.Span{
		Start: x.Start, End: x.End, Color: colors[x.Kind][shade], Label: fmt.Sprint(x.Micro),
		Title: fmt.Sprintf("%s: %s of micro-batch %d in stage %d, %s to %s", x.Action, x.Kind.description(), x.Micro, x.Stage, short(x.Start), short(x.End)),
	}
}

func short(v float64) string { return fmt.Sprintf("%.4g", v) }
