"""Reading and checking data, scaling, holdout, cutting: from what users hand over to arrays."""
