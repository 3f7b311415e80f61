"""Sessions that feed state outputs back: pairs of outputs and inputs are found, kept, forked, rewound and saved."""
