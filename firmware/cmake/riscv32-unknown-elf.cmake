# RV32 with Debian's gcc-riscv64-unknown-elf and picolibc. FLIPBIT_CPU is the instruction set: rv32imac, rv32imc.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR riscv32)
set(CMAKE_C_COMPILER riscv64-unknown-elf-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FLIPBIT_CPU)
set(FLIPBIT_CPU rv32imac CACHE STRING "RISC-V instruction set")
set(CMAKE_C_FLAGS_INIT "-march=${FLIPBIT_CPU} -mabi=ilp32 --specs=picolibc.specs")
