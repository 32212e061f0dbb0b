// Kernels of the algorithms library that comes with the toolkit, as a large body of real code for the decoder.
#include <cub/cub.cuh>
#include <cuda/std/functional>

template <class T>
cudaError_t all(T* p, T* q, int* counts, int n) {
  size_t bytes = 0;
  cub::DeviceReduce::Sum(nullptr, bytes, p, q, n);
  cub::DeviceScan::InclusiveSum(nullptr, bytes, p, q, n);
  cub::DeviceRadixSort::SortKeys(nullptr, bytes, p, q, n);
  cub::DeviceMergeSort::SortKeys(nullptr, bytes, p, n, cuda::std::less<T>{});
  cub::DeviceSelect::Unique(nullptr, bytes, p, q, counts, n);
  cub::DeviceRunLengthEncode::Encode(nullptr, bytes, p, q, counts, counts, n);
  return cub::DeviceHistogram::HistogramEven(nullptr, bytes, p, counts, 65, T{0}, T{64}, n);
}
template cudaError_t all<int>(int*, int*, int*, int);
template cudaError_t all<double>(double*, double*, int*, int);
template cudaError_t all<unsigned char>(unsigned char*, unsigned char*, int*, int);
