"""Numerical building blocks: bucket masses, special functions, quadrature, weighted moments."""
