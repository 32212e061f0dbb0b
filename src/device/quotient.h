// Quotients of many values by one, without the branches of an IEEE division: those of a group by its scale.
#pragma once

#ifndef __CUDACC_RTC__
#include <math.h>
#endif

#include "abi/host_device.h"

namespace megartp::device {

// v / by, rounded as a division is, where |v / by| is zero or lies in [2^-30, 2^30]; smaller ones come out smaller than
// that. `inverse` is 1 / by, rounded; both are normal numbers above zero, and v is finite. Two steps of Markstein's
// correction: after the first the quotient is off by less than an ulp, which makes the second one exact. The steps make
// of a zero one without its sign.
MEGARTP_HOST_DEVICE inline float quotient(float v, float by, float inverse) {
  float q = v * inverse;
  q = fmaf(fmaf(-q, by, v), inverse, q);
  return copysignf(fmaf(fmaf(-q, by, v), inverse, q), v);
}

}  // namespace megartp::device
