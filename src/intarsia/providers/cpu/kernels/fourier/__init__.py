"""DFT, STFT, Rfft, Irfft."""
