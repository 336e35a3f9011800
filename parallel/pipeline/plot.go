package pipeline

import (
	"fmt"
	"html"
	"strings"
)

// The sizes of a drawing, in pixels.
const (
	plotWidth  = 960
	plotLeft   = 64
	plotRow    = 26
	plotTitle  = 34
	plotBottom = 40
)

// colors of the kinds of actions; those of a device's later stages are darker.
var colors = [...][2]string{
	Forward:    {"#8db8e8", "#5588c4"},
	Backward:   {"#9bd29b", "#5fa55f"},
	InputGrad:  {"#a6dcc9", "#62ae95"},
	WeightGrad: {"#f2d58a", "#cfa845"},
}

// Plot draws timelines as an SVG image, one below the other on the same scale of time, each with its time and bubble. unit is the
// unit of time.
func Plot(unit string, timelines ...*Timeline) string {
	height, longest := plotBottom, 0.0
	for _, t := range timelines {
		height += plotTitle + plotRow*len(t.Spans)
		longest = max(longest, t.Time)
	}
	if longest == 0 {
		longest = 1
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", plotWidth, height, plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, height)
	y := 0
	scale := float64(plotWidth-plotLeft-8) / longest
	for _, t := range timelines {
		fmt.Fprintf(&b, `<text x="8" y="%d" font-size="13">%s: %s%s, bubble %.1f %%</text>`+"\n", y+22, html.EscapeString(t.Name), short(t.Time), space(unit), 100*t.Bubble)
		y += plotTitle
		for d, row := range t.Spans {
			fmt.Fprintf(&b, `<text x="8" y="%d">device %d</text>`+"\n", y+17, d)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f0f0f0"/>`+"\n", plotLeft, y+2, plotWidth-plotLeft-8, plotRow-4)
			first := -1
			for _, x := range row {
				if first < 0 || x.Stage < first {
					first = x.Stage
				}
			}
			for _, x := range row {
				x.draw(&b, y, scale, x.Stage > first)
			}
			y += plotRow
		}
	}
	at := plotLeft
	for _, k := range []Kind{Forward, Backward, InputGrad, WeightGrad} {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="14" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", at, y+14, colors[k][0], at+19, y+25, k.word())
		at += 110
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw draws a span, in a row at y.
func (x Span) draw(b *strings.Builder, y int, scale float64, later bool) {
	shade := 0
	if later {
		shade = 1
	}
	left, width := plotLeft+x.Start*scale, (x.End-x.Start)*scale
	fmt.Fprintf(b, `<g><title>%s: %s of micro-batch %d in stage %d, %s to %s</title>`, x.Action, x.Kind.word(), x.Micro, x.Stage, short(x.Start), short(x.End))
	fmt.Fprintf(b, `<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="white" stroke-width="0.5"/>`, left, y+2, width, plotRow-4, colors[x.Kind][shade])
	if text := fmt.Sprint(x.Micro); width > 7*float64(len(text)) {
		fmt.Fprintf(b, `<text x="%.2f" y="%d" text-anchor="middle">%s</text>`, left+width/2, y+17, text)
	}
	b.WriteString("</g>\n")
}

func short(v float64) string { return fmt.Sprintf("%.4g", v) }

func space(unit string) string {
	if unit == "" {
		return ""
	}
	return " " + html.EscapeString(unit)
}
