package shader

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// chosenKey returns the key for a list of choices.
func chosenKey(choices []int) Key {
	s := &Builder{}
	for _, v := range choices {
		s.Specialize(v)
	}
	s.key.more = string(s.more)
	return s.key
}

func TestKeysAreUnique(t *testing.T) {
	lists := [][]int{{}, {17, 0, 0}, {1, 1, 15}, {1}, {0, 1}, {0}, {0, 0}, {math.MaxInt}, {-1}, slices.Repeat([]int{15}, 40), slices.Repeat([]int{15}, 41)}
	numbers := []int{0, 1, 2, 14, 15, 16, 17, 126, 127, 128, 129, 254, 255, 256, 16383, 16384}
	for _, a := range numbers {
		for _, b := range numbers {
			lists = append(lists, []int{a, b, 3}, []int{3, a, b, 0}, append(slices.Repeat([]int{0}, 31), a, b))
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		list := make([]int, r.IntN(45))
		for i := range list {
			list[i] = numbers[r.IntN(len(numbers))]
		}
		lists = append(lists, list)
	}
	seen := map[Key]string{}
	for _, list := range lists {
		key, text := chosenKey(list), fmt.Sprint(list)
		if other, ok := seen[key]; ok {
			require.Equal(t, text, other)
		}
		seen[key] = text
	}
}
