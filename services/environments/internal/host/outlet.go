package host

import (
	"context"
	"net"
	"strconv"
	"sync"

	"github.com/execwarden/execwarden/services/environments/internal/cageproxy"
)

// outlet is the proxy in an attachment's cage, from the first command on that may need it. Its zero value is closed.
type outlet struct {
	mu     sync.Mutex
	port   int
	cancel context.CancelFunc
	ended  chan struct{} // nil: there is none
}

// alive says that the proxy still takes connections.
func (o *outlet) alive() bool {
	if o.ended == nil {
		return false
	}
	select {
	case <-o.ended:
		return false
	default:
		return true
	}
}

// open gives the proxy's port in the cage. One that ended, with a shim that did not answer, is opened again.
func (o *outlet) open(p *place, ways *cageproxy.Proxy) (port int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.alive() {
		return o.port, nil
	}
	ctx, cancel := context.WithCancel(context.Background()) // it ends with the place
	l, err := p.shim.Listen(ctx)
	if err != nil {
		cancel()
		return 0, err
	}
	at, _ := l.Addr().(*net.TCPAddr) // as the shim has it
	o.port, o.cancel, o.ended = at.Port, cancel, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		ways.Serve(ctx, l, string(p.lease.Attachment))
	}(o.ended)
	return o.port, nil
}

func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil {
		o.cancel()
		<-o.ended
	}
}

// proxyEnv is what tells commands of the way out that they have.
func (h *Host) proxyEnv(p *place) (map[string]string, error) {
	if h.ways == nil {
		return nil, nil
	}
	port, err := p.outlet.open(p, h.ways)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		out[name] = "http://127.0.0.1:" + strconv.Itoa(port)
	}
	out["NO_PROXY"], out["no_proxy"] = "localhost,127.0.0.1,::1", "localhost,127.0.0.1,::1"
	return out, nil
}
