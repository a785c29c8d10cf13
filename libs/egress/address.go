package egress

import (
	"net"
	"net/netip"
	"slices"
)

// public6 is the only part of IPv6 that is routed; everything else, mapped and translated addresses included, is not.
var public6 = netip.MustParsePrefix("2000::/3")

// special lists what looks public and is not: the IANA special-purpose registries, transition mechanisms that carry an
// IPv4 address inside, and a metadata service with a public address.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32",                                     // Azure's metadata and health service
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", // Teredo and protocol use, documentation, 6to4, documentation
)

// metadata are addresses that a cloud machine trusts with its credentials. A range that an operator allows does not
// include them; only the address itself does.
var metadata = prefixes("169.254.0.0/16", "fe80::/10", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::/32")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// isPublic reports whether a is an address on the internet and on nothing else.
func isPublic(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if a.Is6() && !public6.Contains(a) {
		return false
	}
	return !within(special, a)
}

// MachineAddresses are those at which this machine reaches itself, at this moment.
func MachineAddresses() (own []netip.Prefix, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		list, err := one.Addrs()
		if err != nil {
			return nil, err
		}
		for _, at := range list {
			p, err := netip.ParsePrefix(at.String())
			if err != nil {
				return nil, err
			}
			a := p.Addr().Unmap()
			own = append(own, netip.PrefixFrom(a, a.BitLen()))
			if one.Flags&net.FlagLoopback != 0 { // of which every address is its own
				own = append(own, p.Masked())
			}
		}
	}
	return own, nil
}

// refuses reports whether Deny or DenyNow names a resolved address.
func (r *rule) refuses(to netip.AddrPort) bool {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if r.DenyNow != nil {
		if now, err := r.DenyNow(); err != nil || within(now, to.Addr()) {
			return true
		}
	}
	return slices.ContainsFunc(r.deny, func(e exception) bool { return e.holds(to) })
}

// mayDial judges one resolved address for a rule.
func (r *rule) mayDial(to netip.AddrPort) bool {
	a := to.Addr().Unmap()
	to = netip.AddrPortFrom(a, to.Port())
	if a.Zone() != "" || r.refuses(to) {
		return false
	}
	if isPublic(a) {
		return true
	}
	for _, e := range r.exceptions {
		if !e.holds(to) {
			continue
		}
		if e.prefix.IsSingleIP() || !within(metadata, a) {
			return true
		}
	}
	return false
}

// exception is one entry of AllowPrivate or Deny.
type exception struct {
	prefix netip.Prefix
	port   uint16 // 0 for any
}

func (e exception) holds(to netip.AddrPort) bool {
	return (e.port == 0 || e.port == to.Port()) && e.prefix.Contains(to.Addr())
}

func parseException(s string) (exception, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		// What is dialled is judged unmapped, so a range of mapped addresses means those that they stand for.
		if a := p.Addr().Unmap(); p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a, p.Bits()-96)
		}
		return exception{prefix: p.Masked()}, nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		a := ap.Addr().Unmap()
		return exception{prefix: netip.PrefixFrom(a, a.BitLen()), port: ap.Port()}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return exception{}, err
	}
	a = a.Unmap()
	return exception{prefix: netip.PrefixFrom(a, a.BitLen())}, nil
}
