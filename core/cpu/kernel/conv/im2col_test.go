package conv

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
)

func TestIm2col(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 40 {
		var kernel, stride, padding, dilation, places []int64
		image := []int{r.IntN(3), 1 + r.IntN(3), 0, 0}
		for d := range 2 {
			kernel, stride = append(kernel, int64(1+r.IntN(4))), append(stride, int64(1+r.IntN(3)))
			padding, dilation = append(padding, int64(r.IntN(4))), append(dilation, int64(1+r.IntN(3)))
			reach := dilation[d]*(kernel[d]-1) + 1
			image[2+d] = int(max(1, reach-2*padding[d])) + r.IntN(30)
			places = append(places, (int64(image[2+d])+2*padding[d]-reach)/stride[d]+1)
		}
		var ints []int64
		for _, v := range [][]int64{kernel, stride, padding, dilation, places} {
			ints = append(ints, v...)
		}
		columns := []int{image[0], image[1] * int(kernel[0]*kernel[1]), int(places[0] * places[1])}
		t.Run(fmt.Sprint(i), func(t *testing.T) { kerneltest.CheckLinear(t, r, im2colCall, col2imCall, ints, nil, image, columns) })
	}
}
