package localpolicy

// MayBrowse gives the browser's program.
func (p *Policy) MayBrowse() (string, error) {
	if p.Browser == "" {
		return "", denied("browser", "there is no browser that may be used")
	}
	return p.Browser, nil
}
