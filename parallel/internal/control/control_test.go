package control_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/plait-ml/plait/parallel/internal/control"
	"github.com/stretchr/testify/require"
)

func TestWorldsOfManySizesCollect(t *testing.T) {
	checkLeaks(t)
	for _, n := range []int{1, 2, 3, 16, 17, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			world := join(t, n, 30*time.Second, nil)
			answers, errs := world[n/2].Collect([]byte("hello"), bound)
			for p := range n {
				require.NoError(t, errs[p])
				require.Equal(t, fmt.Sprint("hello from ", p), string(answers[p]))
			}
		})
	}
}

func TestLeaveInAnyOrderIsNoLoss(t *testing.T) {
	checkLeaks(t)
	const n = 20
	world := join(t, n, short, nil)
	for _, p := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		require.NoError(t, world[p].Leave())
	}
	for p, m := range world {
		require.Empty(t, m.losses(), "process %d", p)
	}
}

func TestWhoStaysIsToldOfAllThatLeaveAtOnce(t *testing.T) {
	checkLeaks(t)
	const n, stays = 40, 13
	world := join(t, n, short, nil)
	var wg sync.WaitGroup
	for p, m := range world {
		if p != stays {
			wg.Go(func() { _ = m.Leave() })
		}
	}
	wg.Wait()
	_, errs := world[stays].Collect([]byte("?"), bound)
	for p, err := range errs {
		if p != stays {
			require.ErrorContains(t, err, "has left")
		}
	}
	for p, m := range world {
		require.Empty(t, m.losses(), "process %d", p)
	}
}

func TestLastWordsArriveBeforeTheLoss(t *testing.T) {
	checkLeaks(t)
	const n = 20
	world := join(t, n, 30*time.Second, nil)
	require.NoError(t, world[3].Say([]byte("out of paper")))
	require.NoError(t, world[3].Close())
	for p, m := range world {
		if p == 3 {
			continue
		}
		eventually(t, "loss", func() bool { return m.losses()[3] != nil })
		require.Equal(t, "out of paper", m.heard(3))
		var loss *control.Loss
		require.True(t, errors.As(m.losses()[3], &loss))
		require.Equal(t, control.Exited, loss.Reason)
		require.ErrorContains(t, loss, "process 3 on host host3 exited or was killed (connection closed); its last words: out of paper; its last known status: status of 3")
		require.Len(t, m.losses(), 1)
	}
	_, errs := world[0].Collect([]byte("?"), bound)
	require.ErrorContains(t, errs[3], "process 3")
	require.NoError(t, errs[4])
}

func TestMissingAnswersAreNamed(t *testing.T) {
	checkLeaks(t)
	hold := make(chan struct{})
	world := join(t, 4, 30*time.Second, func(p int, o *control.Options) {
		switch p {
		case 1:
			o.Answer = nil
		case 2:
			o.Answer = func([]byte) []byte { panic("no idea") }
		case 3:
			o.Answer = func([]byte) []byte { <-hold; return nil }
		}
	})
	_, errs := world[0].Collect([]byte("?"), 200*time.Millisecond)
	close(hold)
	require.NoError(t, errs[0])
	require.ErrorContains(t, errs[1], "process 1 on host host1 gave no answer: it answers no questions")
	require.ErrorContains(t, errs[2], "its answer panicked: no idea")
	require.ErrorContains(t, errs[3], "process 3 on host host3 has not answered within 200ms")
}

// cutWorld is a world whose process 0 is reached through a proxy.
func cutWorld(t *testing.T, n int) ([]*member, *proxy) {
	port := freePort(t)
	x := newProxy(t, port)
	return join(t, n, short, func(p int, o *control.Options) {
		if p == 0 {
			o.Address, o.Advertise = port, []string{x.ln.Addr().String()}
		}
	}), x
}

func TestShortCutsLoseNothing(t *testing.T) {
	checkLeaks(t)
	for _, broken := range []bool{false, true} {
		t.Run(fmt.Sprint("broken=", broken), func(t *testing.T) {
			t.Parallel()
			world, x := cutWorld(t, 3)
			x.set(true, broken)
			said := make(chan error, 1)
			go func() { said <- world[0].Say([]byte("still here")) }()
			time.Sleep(short / 3)
			x.set(false, false)
			require.NoError(t, <-said)
			for _, m := range world[1:] {
				eventually(t, "words", func() bool { return m.heard(0) == "still here" })
			}
			time.Sleep(short)
			for _, m := range world {
				require.Empty(t, m.losses())
			}
		})
	}
}

func TestLongCutsGiveUpTheOneBehindThem(t *testing.T) {
	checkLeaks(t)
	world, x := cutWorld(t, 3)
	x.set(true, false)
	for _, m := range world[1:] {
		eventually(t, "loss", func() bool { return m.losses()[0] != nil })
		require.ErrorContains(t, m.losses()[0], "process 0 on host host0 has not been heard from by process")
		require.NotContains(t, m.losses(), 1)
		require.NotContains(t, m.losses(), 2)
	}
	eventually(t, "own view", func() bool { return len(world[0].losses()) > 0 })
	x.set(false, true)
}

func TestACutBetweenTwoGivesUpTheHigherNumber(t *testing.T) {
	checkLeaks(t)
	port := freePort(t)
	x := newProxy(t, port)
	world := join(t, 3, short, func(p int, o *control.Options) {
		if p == 1 { // only process 2 dials it
			o.Address, o.Advertise = port, []string{x.ln.Addr().String()}
		}
	})
	x.set(true, false)
	for _, m := range world[:2] {
		eventually(t, "loss", func() bool { return m.losses()[2] != nil })
		require.ErrorContains(t, m.losses()[2], "process 2 on host host2 has not been heard from by process 1")
		require.Len(t, m.losses(), 1)
	}
	eventually(t, "given up", func() bool { return world[2].losses()[2] != nil })
	var given *control.GivenUp
	require.ErrorAs(t, world[2].losses()[2], &given)
	require.Len(t, world[2].losses(), 1)
	x.set(false, true)
}

func TestJoinFailsEverywhereIfOneCannotListen(t *testing.T) {
	checkLeaks(t)
	exchange := exchanger(2)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for p, address := range []string{"", "not an address"} {
		wg.Go(func() {
			_, errs[p] = control.Join(control.Options{Process: p, Processes: 2, Exchange: exchange(p), Address: address, Host: fmt.Sprint("host", p)})
		})
	}
	wg.Wait()
	require.ErrorContains(t, errs[0], `process 1 on host host1 cannot listen: control: listening on "not an address"`)
	require.ErrorContains(t, errs[1], `listening on "not an address"`)
	_, err := control.Join(control.Options{Process: 2, Processes: 2, Exchange: exchange(0)})
	require.ErrorContains(t, err, "process 2 of 2")
	_, err = control.Join(control.Options{Processes: 1, Exchange: func([]byte) ([][]byte, error) { return [][]byte{{9}}, nil }})
	require.ErrorContains(t, err, "different releases")
}

func TestStrangersAreRefused(t *testing.T) {
	checkLeaks(t)
	port := freePort(t)
	world := join(t, 3, short, func(p int, o *control.Options) {
		if p == 0 {
			o.Address = port
		}
	})
	r := rand.New(rand.NewPCG(3, 4))
	var wg sync.WaitGroup
	for i := range 40 {
		b := make([]byte, r.IntN(300))
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		if i%2 == 0 {
			copy(b, "plaitctl\x01")
		}
		wg.Go(func() {
			conn, err := net.Dial("tcp", port)
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = conn.Write(b)
			_ = conn.SetReadDeadline(time.Now().Add(bound))
			n, err := conn.Read(make([]byte, 1)) // a slow stranger waits until it is thrown out
			if n != 0 || err == nil {
				t.Errorf("a stranger got an answer")
			}
		})
	}
	_, errs := world[1].Collect([]byte("?"), bound)
	wg.Wait()
	for p, m := range world {
		require.NoError(t, errs[p])
		require.Empty(t, m.losses())
	}
}
