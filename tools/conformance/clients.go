package conformance

import "context"

func (s *site) sessions(ctx context.Context, t tree) error { return nil }
