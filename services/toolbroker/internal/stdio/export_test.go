package stdio

import "time"

// WriteWithin changes how long a program may leave its input unread, until it is called back.
func WriteWithin(d time.Duration) (back func()) {
	was := writeWithin
	writeWithin = d
	return func() { writeWithin = was }
}
