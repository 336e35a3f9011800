package timeline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDraw(t *testing.T) {
	spans := []Span{{Start: 0, End: 1, Color: "red", Label: "wide", Title: "a < b"}, {Start: 1, End: 1.001, Color: "red", Label: "narrow"}}
	svg := Draw([]Key{{"red", "work"}}, Chart{"first", []Row{{"device 0", spans}}}, Chart{"second & last", []Row{{"device 0", nil}, {"device 1", spans[:1]}}})
	assert.True(t, strings.HasPrefix(svg, "<svg ") && strings.HasSuffix(svg, "</svg>\n"))
	assert.Equal(t, 3, strings.Count(svg, "<title>"))
	assert.Equal(t, 2, strings.Count(svg, ">wide<"))
	assert.NotContains(t, svg, ">narrow<")
	assert.Contains(t, svg, "a &lt; b")
	assert.Contains(t, svg, "second &amp; last")
	assert.Contains(t, Draw(nil), "</svg>")
}
