package host

// WithoutGroups makes attachments from now on do without control groups, as on a machine that has none.
func (h *Host) WithoutGroups() {
	if d, ok := h.driver.(*onHost); ok {
		d.cgroup = ""
	}
}
