// Package timeline draws the work of devices over time as an SVG image.
package timeline

import (
	"fmt"
	"html"
	"strings"
)

// Sizes of a drawing, in pixels.
const (
	width   = 960
	left    = 64
	row     = 26
	title   = 34
	bottom  = 40
	letters = 7 // maximum width of a letter
)

// A Span is one piece of work.
type Span struct {
	Start, End float64
	Color      string
	Label      string // drawn if it fits
	Title      string // tooltip
}

// A Row shows the work of one device, or of a part of it.
type Row struct {
	Name  string
	Spans []Span
}

// A Chart is a list of rows, from top to bottom.
type Chart struct {
	Title string
	Rows  []Row
}

// A Key is an entry of the legend.
type Key struct{ Color, Name string }

// Draw returns an SVG image of charts, one below the other, with the same time scale.
func Draw(legend []Key, charts ...Chart) string {
	height, longest, margin := bottom, 0.0, left
	for _, c := range charts {
		height += title + row*len(c.Rows)
		for _, r := range c.Rows {
			margin = max(margin, 16+letters*len(r.Name))
			for _, s := range r.Spans {
				longest = max(longest, s.End)
			}
		}
	}
	if longest == 0 {
		longest = 1
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	y := 0
	scale := float64(width-margin-8) / longest
	for _, c := range charts {
		fmt.Fprintf(&b, `<text x="8" y="%d" font-size="13">%s</text>`+"\n", y+22, html.EscapeString(c.Title))
		y += title
		for _, r := range c.Rows {
			fmt.Fprintf(&b, `<text x="8" y="%d">%s</text>`+"\n", y+17, html.EscapeString(r.Name))
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f0f0f0"/>`+"\n", margin, y+2, width-margin-8, row-4)
			for _, s := range r.Spans {
				s.draw(&b, y, margin, scale)
			}
			y += row
		}
	}
	at := margin
	for _, k := range legend {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="14" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", at, y+14, k.Color, at+19, y+25, html.EscapeString(k.Name))
		at += 110
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw draws a span in the row at height y.
func (s *Span) draw(b *strings.Builder, y, margin int, scale float64) {
	from, long := float64(margin)+s.Start*scale, (s.End-s.Start)*scale
	fmt.Fprintf(b, `<g><title>%s</title>`, html.EscapeString(s.Title))
	fmt.Fprintf(b, `<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="white" stroke-width="0.5"/>`, from, y+2, long, row-4, s.Color)
	if s.Label != "" && long > letters*float64(len(s.Label)) {
		fmt.Fprintf(b, `<text x="%.2f" y="%d" text-anchor="middle">%s</text>`, from+long/2, y+17, html.EscapeString(s.Label))
	}
	b.WriteString("</g>\n")
}
