# Cortex-M with Debian's gcc-arm-none-eabi. FLIPBIT_CPU is the core: cortex-m0, m0plus, m3, m4, m7, m33, m55.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FLIPBIT_CPU)
set(FLIPBIT_CPU cortex-m4 CACHE STRING "Arm core")
if(FLIPBIT_CPU STREQUAL cortex-m55)
  set(FLOATS "-mfloat-abi=hard") # vectors need its registers
else()
  set(FLOATS "-mfloat-abi=soft")
endif()
set(CMAKE_C_FLAGS_INIT "-mcpu=${FLIPBIT_CPU} -mthumb ${FLOATS}")
