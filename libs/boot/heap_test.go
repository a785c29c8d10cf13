package boot

import "testing"

func TestRoomPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 1600, 1 << 20: 1600, 16 << 20: 400, 32 << 20: 200, 64 << 20: 100, 1 << 40: 100} {
		if got := roomPercent(live); got != want {
			t.Errorf("%d live bytes: GOGC %d, want %d", live, got, want)
		}
	}
}
