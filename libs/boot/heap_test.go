package boot

import "testing"

func TestRoomPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 3200, 1 << 20: 3200, 16 << 20: 800, 64 << 20: 200, 128 << 20: 100, 1 << 40: 100} {
		if got := roomPercent(live); got != want {
			t.Errorf("%d live bytes: GOGC %d, want %d", live, got, want)
		}
	}
}
