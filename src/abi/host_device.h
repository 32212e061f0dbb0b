// MEGARTP_HOST_DEVICE: of a function that host code and kernels share.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define MEGARTP_HOST_DEVICE __host__ __device__
#else
#define MEGARTP_HOST_DEVICE
#endif
